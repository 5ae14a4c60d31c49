#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace assay {

/// A mapped file that another process shortens raises SIGBUS when what it has lost is read. While a Watch
/// lives, its bytes read as zeros instead, and check_not_shrunk says so afterwards; a SIGBUS from elsewhere
/// goes to whoever handled it before.
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

/// Throws Error if a file that `location` names ("run/rank00000.h5: t3", or a folder it is in) has shrunk
/// while it was mapped. To be asked after reading, and before anything is believed.
void check_not_shrunk(std::string_view location);

}  // namespace assay
