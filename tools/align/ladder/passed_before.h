#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace assay::align {

/// Rungs that passed in earlier alignments, by the hash of all that decides it: a file of one hash a line.
class PassedBefore {
 public:
  /// @param file  empty: nothing is known, and nothing kept
  /// @throws Error  if it is there and cannot be read
  explicit PassedBefore(std::filesystem::path file);
  /// Never for an empty content, of which nobody knows what decides it.
  bool has(const std::string& content) const;
  /// @throws Error  if it cannot be written
  void add(const std::string& content);

 private:
  const std::filesystem::path file_;
  std::set<std::string> known_;
};

}  // namespace assay::align
