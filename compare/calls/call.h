#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/case_writer.h"
#include "assay/compare/calls/partial_sums.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/calls/scale_test.h"
#include "assay/golden/bound.h"
#include "assay/operators/engine/golden.h"

namespace assay {

/// How a correct kernel computes a result, before it stores it.
struct Device {
  DType arithmetic = DType::float32;
  std::string accumulator = {};            ///< of sums, as parse_accumulator reads it; "": like all else
  std::optional<DType> intermediate = {};  ///< the dtype in which results between steps may be kept
  auto operator<=>(const Device&) const = default;

  /// float64 of a float64 result; others are computed in float32.
  static Device of(DType result);
  /// A call that has a tensor of this dtype may keep results between steps in it, if it is the coarsest.
  void see(DType);
  double stored_roundoff() const;  ///< the unit roundoff of results between steps
  ErrorModel error_model() const;
};

/// Adds the rounding of the final store in a narrower dtype than the arithmetic's.
void allow_store(DType, DType arithmetic, std::span<const double> values, std::span<double> allowed);
/// What a result of this dtype can hold of golden values: where it has neither infinities nor NaN, those
/// beyond its largest number are that number.
std::vector<double> saturated(DType, std::vector<double> values);
/// The golden values are float64 of the same computation, with an error of that share of the bound.
double with_error_of_golden(DType arithmetic);

/// Larger results are judged in some rows only where a part of what is allowed is not enough
/// (Call::compare_quickly). This amount of work takes about a second.
inline constexpr double work_of_recorded = 0x1p24;
/// Below, a tenth of a second, the whole of what is allowed costs little and says more than a part of it.
inline constexpr double work_of_a_look = 0x1p20;

/// A result and the call that made it: of a dump, with the inputs that the same dump recorded, or of a case.
/// A recorded gradient of several micro-batches is the sum of several calls.
class Call {
 public:
  /// Reads the inputs. Throws Error if one of them cannot be read or has no values. A device may keep results
  /// between steps in the narrowest dtype of the call: a float32 result of bfloat16 inputs may have been
  /// stored as bfloat16 first (main gradients).
  Call(const Dump&, std::vector<RecordedCall>, Tensor result);
  /// A result with all that it was made from; variants state the attributes.
  /// @param errors  of inputs that were computed themselves
  Call(const Operator&, std::vector<NamedTensor> inputs, std::string output, Tensor result, Device,
       InputErrors errors = {});

  /// A recorded result and the golden result of the same inputs.
  struct Compared {
    Tensor actual, golden;        ///< golden in float64
    std::vector<double> allowed;  ///< allowed error of each element; empty for integers
    double ratio = 0;             ///< largest error / allowed
    std::int64_t worst_at = -1;
    std::optional<ScaleError> scale;  ///< of floating-point results, if it can be computed
    bool in_any_blocks = false;       ///< by compare_in_any_blocks
    std::int64_t ties = 0;            ///< rows that chose otherwise, as their scores allow
    bool within() const { return ratio <= 1 && (!scale || scale->within()); }
  };
  /// Returns nothing if the calls make a tensor of another shape.
  /// @param as_a_whole  with Compared::scale
  std::optional<Compared> compare(const CallVariant&, const Arithmetic& = {}, bool as_a_whole = true) const;
  /// The same at a fraction of the price, where a part of what is allowed is enough; nothing where it is not.
  std::optional<Compared> compare_quickly(const CallVariant&) const;

  /// Returns other arithmetics that a training framework may use. Products with operands wider than the
  /// result may round them to its dtype first, as autocast does. Products of fp8 operands may end blocks at
  /// the last token of each rank.
  std::vector<Arithmetic> admissible_arithmetics(const CallVariant&) const;

  /// Compares a gradient of expert weights that sums fp8 products of several micro-batches, with blocks that
  /// may end at any token. Each element, each row of the last dimension and the whole must be within the
  /// error that the codes can make. Returns nothing for other calls, and for a single rank.
  std::optional<Compared> compare_in_any_blocks(const CallVariant&) const;

  /// Returns the largest error / allowed of the recorded result: at most 1 for a correct kernel that computes
  /// in float32 (float64 for a float64 result) and may keep intermediate results in the dtype of the result.
  /// Infinite if NaN or Inf differ; nothing if the calls make a tensor of another shape.
  std::optional<double> ratio(const CallVariant&, const Arithmetic& = {}) const;

  /// Returns the golden values. Throws Error if the calls make nothing of these inputs.
  std::vector<double> values(const CallVariant&, const Arithmetic& = {}) const;

  /// Returns false if the golden values are so far from the recorded ones that only a meaningless bound could
  /// cover them. Costs a small share of ratio().
  bool may_fit(const CallVariant&, const Arithmetic& = {}) const;

  /// Returns variants with the value of the attribute that is solved by bisection which fits the recorded
  /// result best, to 1, 2, 3 and 6 digits, all else as in `from`. Empty if the operator has none, and outside
  /// of its range.
  std::vector<CallVariant> with_bisected(const CallVariant& from) const;
  /// Returns variants with the factor that fits best, in the same digits. Empty if the operator has none.
  std::vector<CallVariant> with_factor() const;
  /// Returns variants with the values that the operator lists for this call, all else as in `from`; of all
  /// variants.
  std::vector<CallVariant> with_candidates(const CallVariant& from) const;
  std::vector<CallVariant> with_candidates() const;
  /// Returns the variants of a call with this one that the operator lists as mistakes in its shapes.
  std::vector<CallVariant> with_other_values(const CallVariant& right) const;
  /// The weight of each micro-batch in a sum over several, if such weights explain the recorded result. A
  /// correct sum has weights of 1.
  struct Weights {
    std::vector<std::int64_t> micro_batches;
    std::vector<double> weights;
    double ratio = 0;        ///< largest error / allowed of the sum with these weights
    double uncertainty = 0;  ///< of each weight
  };
  std::optional<Weights> fitted_weights(const CallVariant&) const;
  /// The number of evaluations that a bisection takes; 0 for a call without one.
  int evaluations_to_bisect() const;

  /// Returns the call as an operator case, with the recorded result as its output and without a name. Nothing
  /// for a sum of several calls, and for operands that were rounded to fp8 blocks first.
  std::optional<NewCase> as_case(const CallVariant&) const;
  const Device& device() const { return device_; }
  const Tensor& result() const { return result_; }

  /// The allowed error of each element, were these the golden values.
  /// @param golden_error  of the golden values themselves; empty: they are float64 of the same computation
  std::vector<double> allowed(const CallVariant&, const Tensor& golden,
                              std::span<const double> golden_error) const;
  /// Returns the call in some rows of its result, if its rows depend on single rows of the inputs: as many as
  /// take this work.
  /// @param worst  flat index of an element whose row is kept
  Call in_some_rows(double enough_work, std::int64_t worst) const;
  /// The golden result with what is allowed of it, or the quick part of that (ErrorModel::quick), whatever
  /// was recorded. Nothing if the call makes a tensor of another shape.
  std::optional<Compared> expected(const CallVariant&, bool quick) const;
  /// All golden results of the call and what this device may be off by in each, for take_golden and
  /// take_device_errors of calls with the same operands; empty for a sum of several calls or over ranks.
  /// @param only  the result to compute, of those that share no step
  GoldenAndBound all_results(const CallVariant&, bool quick, std::string_view only = {}) const;
  /// The beginning of a forward result along Usage::causal_along, of so many places; nothing for other calls,
  /// and for shorter ones.
  std::optional<Call> in_first(std::int64_t places) const;
  /// The attribute by whose derivative the result is off furthest, as a whole; nothing where none is off by
  /// more than roundings make.
  std::optional<ScaleError> scale_of_attributes(const CallVariant&, const Compared&) const;
  /// The numbers of its scale_error.
  ScaleTest scale_test(const CallVariant&) const;
  /// Takes what this device may be off by, of each element before it is stored, from the caller:
  /// compute_bound of all outputs costs hardly more than of one.
  void take_device_errors(const CallVariant&, std::vector<double> errors);
  /// Takes the golden values of one of all_results, if they have the size of the recorded result.
  void take_golden(const CallVariant&, const Tensor&);
  /// The recorded result is so many times what the operator makes: a sum of gradients that became an average.
  void take_factor(double factor) { factor_ = factor; }
  /// Puts another result in the place of the judged one, of its shape and dtype.
  void take_result(Tensor);

  /// What a single call was given; empty for a sum of several.
  std::span<const NamedTensor> operands() const;
  /// Returns a single call with others of its operands, by their names.
  Call given(const std::vector<NamedTensor>& others) const;

  /// By how much the golden result moves where each floating-point operand moves by as much as it differs
  /// from that of `other`, up or down as `draw` decides. Nothing where the calls are not alike, where other
  /// elements were chosen, and where a value is no number.
  std::optional<std::vector<double>> answer_to(const Call& other, const CallVariant&,
                                               std::uint64_t draw) const;

  /// Returns a single call with the same operands of another operator, if it takes and makes such.
  std::optional<Call> by(const Operator& other) const;

  /// Whether some rows are judged instead of all.
  bool is_sampled() const { return is_sampled_; }
  /// Whether judging it in full takes so long that some of its rows should be judged instead of all.
  bool is_too_large() const { return in_some_rows(work_of_recorded, -1).is_sampled(); }

  /// Whether a device that keeps results between steps in its Device::intermediate may err more for it.
  bool keeps_results(const CallVariant&) const;

  /// The approximate number of terms that one evaluation adds up.
  double work() const;
  /// Of the result and of what it is made of.
  double elements() const;
  const Operator& op() const { return *summands_.front().op; }
  /// The attributes that were recorded with it.
  const Attributes& recorded() const { return recorded_; }

 private:
  struct Summand {
    const Operator* op;
    std::string output;
    std::vector<NamedTensor> inputs;
    std::int64_t micro_batch = -1;
    std::vector<CutInput> cuts = {};
    std::vector<SharedSum> shared = {};  ///< sums over terms of several ranks
    Attributes inferred = {};            ///< those that shapes and index data tell
    InputErrors errors = {};
    bool shows_choice = false;  ///< Op::infer took one from the result
  };
  void sample_rows(double enough_work, std::int64_t worst);
  DType arithmetic() const { return device_.arithmetic; }
  std::optional<DType> narrowest() const;
  std::vector<NamedTensor> inputs_of(const Summand&, const CallVariant&, const Arithmetic&) const;
  Attributes attributes_of(const Summand&, const CallVariant&) const;
  /// One of each summand.
  struct Evaluated {
    std::vector<Tensor> golden;
    std::vector<std::vector<double>> errors;  ///< of the device, before the result is stored
  };
  std::vector<Tensor> golden(const CallVariant&, const Arithmetic&) const;
  void take_drawn(const CallVariant&, std::vector<Tensor>& parts) const;
  Tensor part_of(const Summand&, const CallVariant&, std::span<const NamedTensor> outputs) const;
  std::vector<std::vector<double>> device_errors(const CallVariant&, bool quick) const;
  const std::vector<std::vector<double>>& known_errors(const CallVariant&) const;
  bool knows_errors(const CallVariant&) const;
  Evaluated evaluated(const CallVariant&, const Arithmetic&, bool quick) const;
  std::vector<double> allowed(const Evaluated&, const std::vector<double>& values,
                              std::span<const double> golden_error = {}) const;
  std::optional<Compared> compare(const CallVariant&, const Arithmetic&, bool as_a_whole, bool quick) const;
  std::int64_t first_wrong_index(const CallVariant&, const std::vector<double>& actual,
                                 const std::vector<double>& golden, std::int64_t& ties) const;
  bool chooses_equals(const CallVariant&) const;
  std::int64_t first_wrong_row(const CallVariant&, std::int64_t& ties) const;
  std::vector<double> leads_of_choices(const CallVariant&, const std::vector<NamedTensor>& inputs,
                                       std::string_view of_gap) const;
  void allow_partial_sums(const Summand&, const CallVariant&, double stored, std::span<double> error) const;
  const Solved* solved(Solved::By) const;
  std::optional<ScaleError> scale(const CallVariant&, const Compared&) const;
  std::optional<ScaleError> scale_of_attribute(const CallVariant&, const Compared&) const;
  std::optional<ScaleError> scale_of_steps(const CallVariant&, const Compared&) const;

  std::vector<Summand> summands_;
  Tensor result_;
  Device device_;
  Attributes recorded_ = {};
  bool is_sampled_ = false;
  double factor_ = 1;
  /// The last computed bound of each summand, which costs far more than its values. It holds for one variant
  /// and all its arithmetics.
  mutable std::vector<std::vector<double>> device_errors_;
  mutable CallVariant errors_of_;
  std::optional<std::pair<CallVariant, Tensor>> golden_;  ///< taken from the caller
};

}  // namespace assay
