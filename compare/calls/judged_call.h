#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/partial_sums.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/calls/scale_test.h"
#include "assay/operators/engine/golden.h"

namespace assay {

/// Calls on the inputs that one dump recorded. A result whose rows follow each from a row of the inputs is
/// replayed in some rows only, if it is large.
class JudgedCall {
 public:
  /// Reads the inputs. Throws Error if one of them cannot be read or has no values.
  /// @param worst  flat index of the element that is off most: its row is replayed in any case
  JudgedCall(const Dump&, std::vector<RecordedCall>, Tensor result, std::int64_t worst);

  /// A recorded result beside what its operator makes of the recorded inputs.
  struct Compared {
    Tensor actual, golden;        ///< golden in float64
    std::vector<double> allowed;  ///< error, per element; empty: of integers, none
    double ratio = 0;             ///< largest error / allowed
    std::int64_t worst_at = -1;
    std::optional<ScaleError> scale;  ///< of floating-point results, where it can be said
    bool within() const { return ratio <= 1 && (!scale || scale->within()); }
  };
  /// Nothing if the calls cannot have made a tensor of this shape.
  std::optional<Compared> compare(const CallVariant&, const Arithmetic& = {}) const;

  /// How else a training framework may have computed it. Products whose operands are wider than the result,
  /// as autocast does: of operands rounded to its dtype. Those of fp8 operands, with blocks that end where
  /// the tokens of a rank do.
  std::vector<Arithmetic> admissible_arithmetics(const CallVariant&) const;

  /// A sum over several micro-batches of the gradients of experts' weights, in fp8, whose blocks may have
  /// ended anywhere: each element, each row of the last dimension and the whole within what the errors of
  /// codes can make. Nothing of other calls, or of a single rank.
  std::optional<Compared> compare_in_any_blocks(const CallVariant&) const;

  /// Largest error / allowed of the recorded result: at most 1 for a correct kernel that computes in float32
  /// (float64 results: float64) and may keep intermediate results in the dtype of the result. Infinite where
  /// NaN or Inf differ. Nothing if the calls cannot have made a tensor of this shape.
  std::optional<double> ratio(const CallVariant&, const Arithmetic& = {}) const;

  /// False: its values are so far from the recorded ones that ratio() is at most 1 only under a bound that
  /// tells nothing apart. Costs a small share of ratio().
  bool may_fit(const CallVariant&, const Arithmetic& = {}) const;

  /// Norms with the epsilon that comes nearest to the recorded result, to one digit, two, .. six; none for
  /// other operators, or if it would be outside 1e-15 to 1.
  std::vector<CallVariant> with_fitted_epsilon() const;
  /// Routers with the factor of their weights that comes nearest, in the same way; none for other operators.
  std::vector<CallVariant> with_fitted_scaling() const;
  /// Attention with the scales that context extension gives it; none for other operators.
  std::vector<CallVariant> with_scales() const;
  /// Routers that choose among groups of experts, in every number of groups and of those kept.
  std::vector<CallVariant> with_groups() const;
  /// How often each micro-batch counts in a sum over several, if that explains the recorded result: 1 is
  /// right.
  struct Weights {
    std::vector<std::int64_t> micro_batches;
    std::vector<double> weights;
    double ratio = 0;        ///< largest error / allowed of the sum with these weights
    double uncertainty = 0;  ///< of a weight
  };
  std::optional<Weights> fitted_weights(const CallVariant&) const;
  /// Evaluations of values that this takes: 0 where there is no epsilon.
  int evaluations_to_fit_epsilon() const;

  /// Terms that one evaluation adds up, or so.
  double work() const;
  const Operator& op() const { return *summands_.front().op; }

 private:
  struct Summand {
    const Operator* op;
    std::string output;
    std::vector<NamedTensor> inputs;
    std::int64_t micro_batch = -1;
    std::vector<CutInput> cuts = {};
    std::vector<SharedSum> shared = {};  ///< sums that are put together of what several ranks have
  };
  void sample_rows(std::int64_t worst);
  DType arithmetic() const;
  std::vector<NamedTensor> inputs_of(const Summand&, const CallVariant&, const Arithmetic&) const;
  Attributes attributes_of(const Summand&, const CallVariant&) const;
  std::vector<Tensor> golden(const CallVariant&, const Arithmetic&) const;         ///< of each call
  std::vector<double> golden_values(const CallVariant&, const Arithmetic&) const;  ///< their sum
  double stored() const;  ///< unit roundoff of what results may have been kept in
  std::vector<std::vector<double>> device_errors(const CallVariant&) const;
  std::vector<double> allowed(const CallVariant&, const std::vector<Tensor>& parts,
                              const std::vector<double>& values) const;
  std::int64_t first_wrong_index(const CallVariant&, const std::vector<double>& actual,
                           const std::vector<double>& golden) const;
  static void reshape_token_index(Summand&);
  void allow_partial_sums(const Summand&, const CallVariant&, double stored, std::span<double> error) const;
  std::optional<ScaleError> scale(const CallVariant&, const Compared&) const;
  double coarsest_roundoff() const;

  std::vector<Summand> summands_;
  Tensor result_;
  /// The last bound of each call, which costs far more than values: that of a variant with all ways to
  /// compute it.
  mutable std::vector<std::vector<double>> device_errors_;
  mutable std::string errors_of_;
};

}  // namespace assay
