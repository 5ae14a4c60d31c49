#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "assay/compare/calls/call.h"

namespace assay {

/// The bits that show a fit to be no accident: an error e of the right call that the fit leaves within its
/// bound b does so by accident once in e / b.
double evidence(const Call::Compared& right, const Call::Compared& fit);

/// Judges calls, one after the other, within a budget: the number of terms that all evaluations add up.
class CallJudge {
 public:
  enum class Standard : std::uint8_t {
    elements,  ///< each element within its bound
    whole,     ///< and no common factor beyond what roundings make (scale_test.h)
  };
  CallJudge(Standard standard, double most_work) : standard_(standard), most_work_(most_work) {}

  struct Fit {
    CallVariant variant;
    Call::Compared compared;
  };
  bool is_within(const Call::Compared&) const;
  /// Call::compare_quickly of a call that takes long.
  std::optional<Call::Compared> compare_quickly(const Call&, const CallVariant&);
  /// What is within its bound at first sight: quickly where the call takes long. Changes nothing, not the
  /// budget.
  std::optional<Call::Compared> first_look(const Call&, const CallVariant&) const;
  void spend_first_look(const Call&);
  /// Compares as declared or in another way that is right, whichever is nearer.
  std::optional<Call::Compared> compare(const Call&, const CallVariant&);
  /// Returns the comparison if it is within the bound, in this arithmetic or in one that is admissible beside
  /// it; nothing if the budget is spent.
  /// @param is_likely  whether it probably is: then looking whether it may be costs more than it spares
  std::optional<Call::Compared> fit(const Call&, const CallVariant&, const Arithmetic& = {},
                                    bool is_likely = false);
  std::optional<Fit> first_fit(const Call&, const std::vector<CallVariant>& among);
  /// Call::with_bisected and Call::fitted_weights, within the budget.
  std::vector<CallVariant> with_bisected(const Call&, const CallVariant& from);
  std::optional<Call::Weights> fitted_weights(const Call&, const CallVariant&);

  bool is_spent() const { return work_ > most_work_; }
  Standard standard() const { return standard_; }

 private:
  Standard standard_;
  double most_work_;
  double work_ = 0;
};

}  // namespace assay
