#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "assay/dumps/io/shrunk.h"

namespace assay {

/// A regular file, mapped read-only (a small file is read). Tensors keep their file alive and point into it,
/// so reading copies nothing.
///
/// The length is taken once, at opening, and every range is checked against it. Bytes that another process
/// cuts off later read as zeros, and check_not_shrunk (shrunk.h) reports them.
class MappedFile {
 public:
  /// Throws Error if `path` is not a regular file or cannot be read.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  /// Opens a file that another file names. The name must be a plain name (is_plain_name) in `folder`, and no
  /// link.
  static std::shared_ptr<const MappedFile> open_in(const std::filesystem::path& folder,
                                                   std::string_view name);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  /// Returns `length` bytes from `offset`. Throws Error that calls them `what` if the file is shorter.
  std::span<const std::byte> range(std::uint64_t offset, std::uint64_t length, std::string_view what) const;

 private:
  MappedFile(const std::filesystem::path& path, int open_flags);
  void read_whole(int fd, std::size_t size);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> copy_;  ///< the bytes of a file that is not mapped
  std::optional<Watch> watch_;   ///< of a mapped file
};

/// Letters, digits, '_', '.', '-' only, and not "." or "..": a name that stays in its folder.
bool is_plain_name(std::string_view);

/// An unsigned little-endian number at `offset`; the caller has checked that it lies inside.
template <class T>
T load_little(std::span<const std::byte> bytes, std::size_t offset) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[offset + i]) << (8 * i)));
  }
  return value;
}

}  // namespace assay
