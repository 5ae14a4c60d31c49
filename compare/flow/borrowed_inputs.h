#pragma once

#include <map>
#include <utility>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/relations.h"

namespace assay {

/// Finds inputs that calls were given and that were not recorded with them.
class BorrowedInputs {
 public:
  /// All must outlive this.
  BorrowedInputs(const RecordedCalls& calls, const Makes& makes, const EarlierValues& candidates)
      : calls_(calls), makes_(makes), candidates_(candidates) {}
  /// A parameter of a step, which any module may use.
  void add_parameter(const LogicalTensor& t) { parameters_[t.id.step].push_back(&t); }
  /// Whether an operator makes the result: with all inputs, or with those that can be borrowed from values
  /// before it, which go to `found`.
  bool is_of_operator(const LogicalTensor&, Relations& found) const;

 private:
  using Given = std::vector<std::pair<const Arg*, std::size_t>>;
  bool borrows_parameter(const RecordedCall&, const Arg&, const LogicalTensor&, Relations& found) const;
  bool borrows(const RecordedCall&, const Arg&, const std::vector<const LogicalTensor*>& among,
               const LogicalTensor&, Relations& found) const;
  std::vector<Given> borrowable(const std::vector<const Arg*>& absent, const LogicalTensor&) const;

  const RecordedCalls& calls_;
  const Makes& makes_;
  const EarlierValues& candidates_;
  std::map<std::int64_t, std::vector<const LogicalTensor*>> parameters_;  ///< by step
};

}  // namespace assay
