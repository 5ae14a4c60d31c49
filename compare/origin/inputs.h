#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/flow.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Whether the tensor was computed by a module: an output, or a gradient.
bool is_result(const Identity&);

/// Which findings are of the tensors that another one was computed from, as far as they were recorded.
class Inputs {
 public:
  /// @param flow  which results the inputs of modules come from; nullptr: not known. All must outlive this.
  Inputs(const std::vector<Finding>& findings, const std::vector<Pair>& pairs, const RecordedCalls& reference,
         const Flow* flow);

  /// The findings of what finding `i` was computed from: of its shares, of the result that it is, of the
  /// optimizer's gradient, parameter and norms, or of the inputs of its call.
  std::vector<std::size_t> of(std::size_t i) const;
  /// The findings of the inputs of its call alone.
  std::vector<std::size_t> of_call(std::size_t i) const;
  /// The findings of the inputs of the calls that make it, those among them that were not recorded with the
  /// call.
  std::vector<std::size_t> given_to_call(std::size_t i) const;
  /// Whether `inputs`, those of finding `i`, tell where it comes from: a result needs more than parameters,
  /// and a gradient needs the gradient that was handed back.
  bool hold_data(std::size_t i, const std::vector<std::size_t>& inputs) const;
  /// Whether it was loaded, not computed: a parameter of the first step that was recorded.
  bool is_initial(const Identity&) const;
  /// The finding of a tensor, if it was compared.
  std::optional<std::size_t> find(const Identity&) const;
  /// "input x, param weight and 2 more"
  std::string names(const std::vector<std::size_t>& inputs) const;

 private:
  void add(std::vector<std::size_t>& inputs, const Identity& id) const;
  std::vector<std::size_t> of_step(std::size_t i) const;

  const std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const RecordedCalls& reference_;
  const Flow* flow_;
  std::map<const LogicalTensor*, std::size_t> by_tensor_;
  std::map<Identity, std::size_t> by_id_;
  std::int64_t first_step_;
};

}  // namespace assay
