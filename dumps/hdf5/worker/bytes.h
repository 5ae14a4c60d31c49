#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace assay {

/// Reads bytes from the front. After the end all numbers are 0, and `failed` is true.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T take() {
    T value{};
    if (sizeof value > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }
  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) {
      failed_ = true;
      size = rest_.size();
    }
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  std::size_t size() const { return rest_.size(); }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> rest_;
  bool failed_ = false;
};

}  // namespace assay
