#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/relations.h"

namespace assay {

/// Looks for the calls that programs make in no module of their own, of what several modules gave: the
/// attention between the projections.
class HiddenCalls {
 public:
  HiddenCalls(const RecordedCalls& calls, const Makes& makes, const EarlierValues& candidates)
      : calls_(calls), makes_(makes), candidates_(candidates) {}
  /// Looks for a call that makes the tensor, and adds it. Returns whether there is one.
  bool find(const LogicalTensor&, const SideTensor&, Relations&) const;

 private:
  using Given = std::vector<std::pair<const Arg*, std::size_t>>;  // arguments and candidates
  bool find_of(const Operator&, std::span<const std::string_view> names, const LogicalTensor&,
               Relations&) const;
  std::vector<std::size_t> candidates_for(const Operator&, const Arg&, const LogicalTensor&) const;
  bool has_gradient(const LogicalTensor&) const;
  bool is_result_of(std::size_t candidate, const Arg&) const;
  void assign(const Operator&, const std::vector<const Arg*>&, const LogicalTensor&, Given&,
              std::vector<Given>&) const;
  bool may_make(const Operator&, const Given&, const Shape& result) const;
  void take(const Operator&, const Arg& output, const Given&, const LogicalTensor&, Relations&) const;

  const RecordedCalls& calls_;
  const Makes& makes_;
  const EarlierValues& candidates_;
};

}  // namespace assay
