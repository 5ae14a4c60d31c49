#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/count.h"
#include "assay/compare/diff.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/pairs/row_dtype.h"
#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/rules/expectation.h"

namespace assay {

/// Judges pairs from end to end: by the rules of the run, whatever they were made of.
class PairJudge {
 public:
  /// All must outlive this.
  PairJudge(const Sides&, const std::vector<Pair>&, const DiffOptions&);

  /// Pairs in their order, those that others judge, too: dtypes deviate from what came before.
  void see(const Pair&);
  /// Fills all that is known of the finding but where its difference comes from.
  /// @param convention  compares in the units of the reference
  void judge(Finding&, const Pair&, const std::optional<ScaleConvention>& convention = {});

  const RowDType& row_dtype() const { return row_dtype_; }

 private:
  void compare_pair(Finding&, const Pair&, const std::vector<std::string>& paths,
                    const std::optional<ScaleConvention>&);
  void compare_values(Finding&, const Pair&, Expectation, const std::optional<ScaleConvention>&);
  void compare_sketches(Finding&, const Pair&, const Expectation&,
                        const std::optional<ScaleConvention>&) const;
  void compare_recorded(Finding&, const Pair&, const Expectation&) const;
  Expectation expectation(Finding&, const Pair&, const std::vector<std::string>& paths) const;
  void add_opinions(Finding&, Expectation,
                    const std::function<void(Finding&, const Expectation&)>& judge) const;
  void note_choices(Finding&, const Tensor& actual, const Tensor& reference) const;

  const Dump& actual_;
  const Dump& reference_;
  const Sides sides_;
  const DiffOptions& options_;
  TensorsById reference_by_id_;
  CountOf count_of_;
  RowDType row_dtype_;
  std::map<Identity, std::string> unplaced_in_actual_, unplaced_in_reference_;  ///< with why
  int error_maps_ = 0;                                                          ///< made so far
};

}  // namespace assay
