#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace assay {

/// A mapped file that another process shortens raises SIGBUS when the lost bytes are read. While a Watch
/// lives, its lost bytes read as zeros instead, and check_not_shrunk reports them afterwards. A SIGBUS from
/// elsewhere goes to the handler before.
class Watch {
 public:
  Watch(const void* address, std::size_t size, const std::filesystem::path&);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Mapping* mapping_;
  friend struct Mapping;
};

/// Throws Error if a file in `location` ("run/rank00000.h5: t3", or a folder) has shrunk while it was mapped.
/// Call it after reading, before any result is believed.
void check_not_shrunk(std::string_view location);

}  // namespace assay
