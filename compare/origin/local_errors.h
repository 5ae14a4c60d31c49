#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/calls/fitted_calls.h"
#include "assay/compare/calls/last_results.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/expected_value.h"
#include "assay/compare/origin/calls_ahead.h"
#include "assay/compare/origin/elsewhere_recorded.h"
#include "assay/compare/origin/failing_cases.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Errors that operators made themselves: the golden operator on the recorded inputs of the actual side,
/// against the recorded result. Unrecorded attributes are those with which the recording of the reference is
/// inside the bound; if none fit, the call is not judged.
class LocalErrors {
 public:
  struct Options {
    /// Judges every result, also by its scale, and explains a failure by its own golden values.
    bool isolate = false;
    std::vector<KnownSize> sizes = {};  ///< possible factors
    FailingCases* cases = nullptr;      ///< gets the calls that are wrong; nullptr: nobody
    int threads = 1;
  };

  /// @param sides  its dumps and tensors must outlive this
  LocalErrors(const Sides& sides, Options options);
  explicit LocalErrors(const Sides& sides) : LocalErrors(sides, Options()) {}

  struct Judgement {
    double ratio;                      ///< largest error / allowed: at most 1 for a correct kernel
    std::string how;                   ///< "rms_norm (eps = 1e-6) on its own recorded inputs: .."
    std::vector<Diagnosis> diagnoses;  ///< other calls of the operator that make this result
    /// Of a right result: its exemption where the end-to-end rule refuses it.
    Exemption::Kind exemption = Exemption::Kind::amplified_rounding;
    /// Every element was judged, and each has one right value: no sample of rows, no choice between near
    /// ties.
    bool is_whole = true;
    std::optional<RightValue> right = {};  ///< of a wrong result that no mistake explains
  };
  /// Judges one result. Returns nothing if the call, its inputs or its attributes are not known, if the
  /// budget is spent, or if a tensor cannot be read; the finding gets a note about the last.
  std::optional<Judgement> judge(Finding&, const Pair&);
  /// Judges the reference's result in the same way, with the attributes that are known. Returns nothing if it
  /// is right or cannot be judged.
  std::optional<Judgement> wrong_reference(const Finding&, const Pair&);
  /// How far the inputs of both sides move the golden result, beside inputs that differ by as much at random.
  /// At most 1: no further than that explains. Nothing where the call or its attributes are not known.
  std::optional<double> beside_random_inputs(const Pair&);
  bool has_call(const Pair& pair) const {
    return pair.actual != nullptr && !actual_calls_.producers(*pair.actual).empty();
  }
  /// Begins to judge a result on another thread. False if its attributes are not known yet.
  bool look_ahead(const Pair&);
  bool looks_ahead() const { return ahead_.has_room(); }
  /// Of a result that is not judged any more.
  void forget(const Pair& pair) { (void)ahead_.take(pair.actual); }

  /// What both sides multiply the sums of parameters' gradients by.
  void take_scale_of_sums(double actual, double reference) {
    actual_sums_ = actual;
    reference_sums_ = reference;
  }
  const Sides& sides() const { return sides_; }
  RecordedCalls& actual_calls() { return actual_calls_; }
  RecordedCalls& reference_calls() { return reference_calls_; }
  CallJudge& judge() { return judge_; }
  FittedCalls& fitted() { return fitted_; }
  LastResults& last_results() { return last_; }
  /// The numbers of results without a judgement, by reason.
  struct Unjudged {
    std::int64_t no_call = 0;     ///< the operator or one of its inputs is not known
    std::int64_t no_fit = 0;      ///< the recording of the reference is outside the bound with any attributes
    std::int64_t no_budget = 0;   ///< the budget is spent
    std::int64_t unreadable = 0;  ///< a tensor of the call cannot be read
  };
  const Unjudged& unjudged() const { return unjudged_; }

 private:
  struct Judged {
    CallVariant variant;
    Call::Compared compared;
    bool is_equivalent = false;  ///< the reference is right with other attributes, too
  };
  std::optional<Call> recorded_call(const Dump&, const RecordedCalls&, const LogicalTensor&) const;
  std::optional<Judgement> judge_call(Finding&, const Pair&);
  std::optional<Judgement> judge_as_known(const Call&, const CallVariant& known, const LogicalTensor& made,
                                          const std::optional<FirstLook>& ahead);
  Judgement judgement(const Call& actual, const Judged&, const LogicalTensor& made);
  static Exemption::Kind exemption_of(const Judged&);

  Sides sides_;
  Options options_;
  RecordedCalls actual_calls_, reference_calls_;
  ElsewhereRecorded other_operands_;
  CallJudge judge_;
  FittedCalls fitted_;
  LastResults last_;
  Unjudged unjudged_;
  double actual_sums_ = 1, reference_sums_ = 1;
  CallsAhead ahead_;  // the last: its threads read the others
};

}  // namespace assay
