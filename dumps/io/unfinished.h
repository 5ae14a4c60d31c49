#pragma once

#include <filesystem>

namespace assay {

/// A file or folder that is being written, under a temporary name beside its place. It gets its true name
/// when it is complete, and is removed if it never is. A killed process leaves no file under the true name.
class Unfinished {
 public:
  enum class Kind { file, folder };
  /// Makes it, empty. Throws Error if `target` exists.
  Unfinished(std::filesystem::path target, Kind);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Waits for the disk, then renames. Throws Error if `target` exists meanwhile.
  void finish();

 private:
  std::filesystem::path target_, path_;
};

/// Waits until a file or folder is on the disk. Throws Error if it cannot be.
void sync_to_disk(const std::filesystem::path&);

}  // namespace assay
