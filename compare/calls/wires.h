#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"

namespace assay {

/// Who gives what to whom, as the reference shows it: an input of a call that has the bits of a result made
/// before it, in the same step and micro-batch, is that result. The same must hold on the actual side; else
/// the value was changed on the way, by no operator that was recorded.
class Wires {
 public:
  /// Reads every input and result of the reference.
  /// @param sides  what it refers to must outlive this
  explicit Wires(const Sides& sides);

  /// What made this input of the reference; nullptr where that is not known.
  const LogicalTensor* source_of(const LogicalTensor& input) const;
  /// All inputs that are this result.
  const std::vector<const LogicalTensor*>& uses_of(const LogicalTensor& result) const;
  /// Nothing if the actual side's input is what its source gave, but for a cast, or cannot be compared; else
  /// a sentence that names both.
  /// @param actual  the same tensor of the actual side
  std::optional<std::string> broken(const LogicalTensor& input, const LogicalTensor& actual) const;

  std::int64_t inputs() const { return inputs_; }  ///< of the reference
  std::int64_t known() const { return static_cast<std::int64_t>(sources_.size()); }
  /// The actual side's tensor of that identity, if it has values.
  const LogicalTensor* actual(const Identity&) const;
  const LogicalTensor* reference(const Identity&) const;

 private:
  void find_sources();
  void find_parameters();

  Sides sides_;
  std::map<Identity, const LogicalTensor*> actual_, reference_;
  std::map<const LogicalTensor*, const LogicalTensor*> sources_;
  std::map<const LogicalTensor*, std::vector<const LogicalTensor*>> uses_;
  std::int64_t inputs_ = 0;
};

}  // namespace assay
