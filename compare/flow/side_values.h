#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "assay/compare/pairs/scale_convention.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// A tensor of any step and micro-batch: its Identity in step 0, and in micro-batch 0 where it has one.
using Name = Identity;
Name name_of(const Identity&);

/// A tensor of one side, put together, in float64.
struct SideTensor {
  DType dtype = DType::float32;
  Shape shape;
  std::vector<double> values;
  /// Where ranks hold addends: the sum of the addends' magnitudes. Empty: the values are whole.
  std::vector<double> magnitude;
  double addends = 1;
};

/// Puts the tensors of one step and micro-batch in the order in which they were made.
void put_in_order(std::vector<const LogicalTensor*>& frame);

/// Reads the tensors of one side, each at most once while it is near.
class SideValues {
 public:
  /// @param tensors     must outlive this
  /// @param convention  of the actual side
  SideValues(const Dump&, const std::vector<LogicalTensor>& tensors,
             std::optional<ScaleConvention> convention = {});
  /// Returns nullptr for a tensor that was not recorded, or without values.
  const LogicalTensor* find(const Identity&) const;
  /// All tensors of that name that have values, in all steps and micro-batches.
  const std::vector<const LogicalTensor*>& named(const Name&) const;
  /// Throws Error if it cannot be read.
  std::shared_ptr<const SideTensor> read(const LogicalTensor&) const;
  /// By how much a gradient or a loss is larger than in the reference, by convention.
  double scale_of(const Identity& id) const { return convention_ ? convention_->of(id) : 1; }
  double loss_scale() const { return convention_ ? convention_->factor : 1; }
  const Dump& dump() const { return dump_; }
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }

 private:
  const Dump& dump_;
  const std::vector<LogicalTensor>& tensors_;
  std::optional<ScaleConvention> convention_;
  std::map<Identity, const LogicalTensor*> by_id_;
  std::map<Name, std::vector<const LogicalTensor*>> by_name_;
  mutable std::map<const LogicalTensor*, std::shared_ptr<const SideTensor>> near_;
  mutable double bytes_ = 0;
};

}  // namespace assay
