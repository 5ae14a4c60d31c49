#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/finding.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/replay/recorded_call.h"
#include "assay/compare/replay/replay.h"

namespace assay {

/// What operators did wrong themselves: the golden operator on the inputs that the actual side recorded,
/// against the result that it recorded. Attributes that no recorder writes are those with which the
/// reference's own recording is inside the bound; where none does, nothing is said.
class LocalErrors {
 public:
  /// @param sides  what it refers to must outlive this
  explicit LocalErrors(const Sides& sides);

  struct Local {
    double ratio;                      ///< largest error / allowed: at most 1 for a correct kernel
    std::string how;                   ///< "rms_norm (eps = 1e-6) on its own recorded inputs: .."
    std::vector<Diagnosis> diagnoses;  ///< another call of the operator that makes just this result
  };
  /// Nothing where the call, its inputs or its attributes are not known, or too much was replayed already.
  std::optional<Local> of(const Finding&, const Pair&);

  const RecordedCalls& reference_calls() const { return reference_calls_; }

 private:
  std::optional<Replay> prepare(const Dump&, const RecordedCalls&, const LogicalTensor&,
                                const Finding&) const;
  std::optional<CallVariant> fitting(const Replay& reference, const Identity&);
  std::optional<CallVariant> first_fit(const Replay&, const std::vector<CallVariant>& among);
  bool fits(const Replay&, const CallVariant&, const Arithmetic& = {});
  std::vector<CallVariant> with_fitted_epsilon(const Replay&);
  std::vector<Diagnosis> mistakes(const Replay& actual, const CallVariant& right);

  Sides sides_;
  RecordedCalls actual_calls_, reference_calls_;
  double work_ = 0;  ///< terms so far
  /// By operator and module without its numbers: calls of one module in all layers have the same.
  std::map<std::pair<const Operator*, std::string>, CallVariant> known_;
};

}  // namespace assay
