#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// The tensors of one side, among which a wrong one may be found.
class NearbyTensors {
 public:
  /// What a tensor must have to be found: values, or values or sketches.
  enum class Holding : std::uint8_t { values, sketches };
  /// Both must outlive this.
  NearbyTensors(const Dump&, const std::vector<LogicalTensor>&, Holding = Holding::values);

  /// The tensor if it has values, or a sketch where that is enough, else nullptr.
  const LogicalTensor* find(const Identity&) const;
  TensorSource read(const LogicalTensor& t) const { return merge(dump_, t).tensor; }

  /// What it is in other steps, micro-batches and calls, the nearest first.
  std::vector<const LogicalTensor*> in_other_calls(const Identity&, const Shape&) const;
  /// Tensors of the same step, micro-batch and kind: those of modules of the same name in other places first,
  /// then those beside it.
  std::vector<const LogicalTensor*> of_other_modules(const Identity&, const Shape&, bool beside_alone) const;

  struct Term {
    Identity id;
    std::string name;  ///< "its parameter before the step"
  };
  /// What a program may have added to a tensor, or left out.
  std::vector<Term> terms_of(const Identity&, const Shape&) const;

 private:
  const Dump& dump_;
  const std::vector<LogicalTensor>& tensors_;
  Holding holding_;
  TensorsById by_id_;
  std::map<Identity, std::vector<const LogicalTensor*>> by_name_;
};

}  // namespace assay
