#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <unordered_map>

#include "assay/dumps/io/file.h"

namespace assay {

/// Megatron's integrity.json: the SHA-256 of each file of a checkpoint.
class Integrity {
 public:
  /// Nothing to verify if the folder has no such file. Throws Error if it is damaged.
  explicit Integrity(const std::filesystem::path& folder);
  /// Throws Error if the file has another checksum; each file is read once. Files that are not listed pass.
  void verify(const MappedFile&) const;

 private:
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::string> expected_;  ///< of files yet to be verified
};

}  // namespace assay
