#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/calls/judged_call.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// What operators did wrong themselves: the golden operator on the inputs that the actual side recorded,
/// against the result that it recorded. Attributes that no recorder writes are those with which the
/// reference's own recording is inside the bound; where none does, nothing is said.
class LocalErrors {
 public:
  struct Options {
    /// Every result is judged, by its scale, too, and a failure is explained by its own golden values.
    bool isolate = false;
    std::vector<KnownSize> sizes = {};  ///< that a factor may come from
  };

  /// @param sides  what it refers to must outlive this
  LocalErrors(const Sides& sides, Options options);
  explicit LocalErrors(const Sides& sides) : LocalErrors(sides, Options()) {}

  struct Judgement {
    double ratio;                      ///< largest error / allowed: at most 1 for a correct kernel
    std::string how;                   ///< "rms_norm (eps = 1e-6) on its own recorded inputs: .."
    std::vector<Diagnosis> diagnoses;  ///< another call of the operator that makes just this result
  };
  /// Nothing where the call, its inputs or its attributes are not known, or too much was replayed already.
  std::optional<Judgement> judge(const Finding&, const Pair&);

  const RecordedCalls& reference_calls() const { return reference_calls_; }
  /// Why judge() had nothing to say of results, and of how many.
  struct Unjudged {
    std::int64_t no_call = 0;     ///< no operator is known to have made them, or not all of its inputs
    std::int64_t no_fit = 0;      ///< the reference's own recording is outside, with any attributes
    std::int64_t no_budget = 0;   ///< too much was replayed already
    std::int64_t unreadable = 0;  ///< a tensor of the call cannot be read
  };
  const Unjudged& unjudged() const { return unjudged_; }

 private:
  using Key = std::pair<const Operator*, std::string>;
  struct Judged {
    CallVariant variant;
    JudgedCall::Compared compared;
  };
  std::optional<JudgedCall> recorded_call(const Dump&, const RecordedCalls&, const LogicalTensor&,
                                const Finding&) const;
  std::optional<Judgement> judge_call(const Finding&, const Pair&);
  std::optional<JudgedCall::Compared> compare(const JudgedCall&, const CallVariant&);
  bool is_within(const JudgedCall::Compared&) const;
  Judgement judgement(const JudgedCall& actual, const Judged&);
  std::optional<CallVariant> fitted_variant(const JudgedCall& reference, const Key&);
  std::optional<Judged> variant_of_both(const JudgedCall& actual, const JudgedCall& reference, const CallVariant& but,
                                     const Key&);
  std::optional<Judged> first_fit(const JudgedCall&, const std::vector<CallVariant>& among);
  /// Compared if it is within.
  std::optional<JudgedCall::Compared> fit(const JudgedCall&, const CallVariant&, const Arithmetic& = {});
  std::vector<CallVariant> with_fitted_epsilon(const JudgedCall&);
  std::vector<Diagnosis> weight_diagnoses(const JudgedCall& actual, const CallVariant& right);
  std::vector<Diagnosis> mistake_diagnoses(const JudgedCall& actual, const CallVariant& right);
  std::vector<Diagnosis> value_diagnoses(const JudgedCall::Compared&, const JudgedCall& actual) const;
  bool is_spent() const;

  Sides sides_;
  Options options_;
  RecordedCalls actual_calls_, reference_calls_;
  double work_ = 0;  ///< terms so far
  Unjudged unjudged_;
  /// By operator and module without its numbers: calls of one module in all layers have the same.
  std::map<Key, CallVariant> known_variants_;
  std::map<Key, std::set<std::string>> refused_variants_;  ///< texts of variants that a reference told apart
};

}  // namespace assay
