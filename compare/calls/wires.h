#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"

namespace assay {

/// The flow of values between calls, as the reference shows it. An input with the bits of an earlier result,
/// in the same step and micro-batch, is that result. The same must hold on the actual side; else the value
/// changed between the calls, and no recorded operator changed it.
class Wires {
 public:
  /// Reads every input and result of the reference.
  /// @param sides  its dumps and tensors must outlive this
  explicit Wires(const Sides& sides);

  /// Returns the result that this input of the reference is; nullptr if it is not known.
  const LogicalTensor* source_of(const LogicalTensor& input) const;
  /// Returns all inputs that are this result.
  const std::vector<const LogicalTensor*>& uses_of(const LogicalTensor& result) const;
  /// Returns nothing if the input of the actual side has the values of its source, up to a cast, or cannot be
  /// compared; else a sentence that names both.
  /// @param actual  the same tensor of the actual side
  std::optional<std::string> broken(const LogicalTensor& input, const LogicalTensor& actual) const;

  std::int64_t inputs() const { return inputs_; }  ///< of the reference, in total
  std::int64_t known() const { return static_cast<std::int64_t>(sources_.size()); }
  /// One sentence for each tensor of the reference that could not be read.
  const std::vector<std::string>& troubles() const { return troubles_; }
  /// Returns the tensor of that identity on the actual side, if it has values.
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
  std::vector<std::string> troubles_;
};

}  // namespace assay
