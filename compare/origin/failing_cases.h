#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "assay/compare/calls/call.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Writes calls that are wrong on their own inputs as operator cases, each into a folder of its own, and has
/// Finding::repeat check that folder.
class FailingCases {
 public:
  static constexpr std::int64_t most = 20;  ///< the first ones in execution order are the roots

  /// @param folder  is made when there is a first case; empty: nothing is written
  explicit FailingCases(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// @param right  the call as the reference shows it
  /// @throws Error  if a file cannot be written
  void add(Finding&, const Call&, const CallVariant& right);
  /// "wrote 3 wrong calls as cases to DIR; 2 more sum several calls"; empty if none is wrong.
  std::string note() const;

 private:
  std::string unused_name(const std::string& finding);

  std::filesystem::path folder_;
  std::set<std::string> names_;
  std::int64_t of_several_ = 0, beyond_ = 0;
};

}  // namespace assay
