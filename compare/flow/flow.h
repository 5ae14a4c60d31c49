#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/calls/fitted_calls.h"
#include "assay/compare/calls/last_results.h"
#include "assay/compare/flow/expected_value.h"
#include "assay/compare/flow/hidden_loss.h"
#include "assay/compare/flow/relations.h"
#include "assay/compare/flow/step_scalars.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// The flow of values between calls: how the reference's tensors follow from each other, and whether those of
/// the actual side do, too. Forward relations are found by content; the gradient of a value is the sum of
/// what its uses give back. A relation that does not hold in the reference judges nothing.
class Flow {
 public:
  /// @param sides            its dumps and tensors must outlive this
  /// @param actual, reference  get the inputs that calls were given and that were not recorded with them
  Flow(const Sides& sides, RecordedCalls& actual, RecordedCalls& reference, CallJudge&, FittedCalls&,
       LastResults&);

  struct Judgement {
    double ratio = 0;  ///< largest error / allowed; infinite for an element that should have been moved only
    std::string how = {};                   ///< "the sum of a and b"
    std::string wrong = {};                 ///< a sentence, if the ratio is above 1
    bool is_copy = false;                   ///< of one value, up to a cast
    bool is_reordered = false;              ///< of rows whose order means nothing
    std::optional<RightValue> right = {};   ///< if it is wrong
    std::optional<Diagnosis> mistake = {};  ///< that makes it
  };
  /// Judges a tensor by the values that it is made of. Nothing if they are not known.
  /// @param reference  nullptr: the reference lacks it in this micro-batch
  /// @param agrees     it is within its end-to-end rule
  std::optional<Judgement> judge(const LogicalTensor* reference, const LogicalTensor& actual,
                                 bool agrees = false);
  /// Whether they are rows that data chose, by a rule that nobody recorded.
  bool are_chosen_rows(const Identity&) const;
  /// Whether both sides hold the same values, up to a cast to the coarser dtype: of what nothing made.
  bool is_same(const LogicalTensor& reference, const LogicalTensor& actual) const;
  /// The index on which it depends whether a tensor is there at all, with the choice that makes it: a tensor
  /// of an expert. Nothing for others.
  struct Condition {
    Name index;
    std::int64_t choice = 0;
  };
  std::optional<Condition> condition_of(const Identity&) const;
  /// Whether the choice was made on that side, in the step and micro-batch of a tensor. Nothing if the index
  /// is not there.
  std::optional<bool> chosen(bool on_actual, const Condition&, const Identity&) const;

  /// What the sums of parameters' gradients are multiplied by on a side: an average over ranks.
  double scale_of_sums(bool on_actual) const {
    return on_actual ? reference_sums_ / actual_.loss_scale() : reference_sums_;
  }

  /// The tensors of the reference that this one is made of; empty if they are not known.
  std::vector<const LogicalTensor*> sources(const LogicalTensor& reference) const;
  /// The inputs of the calls that make this result of the reference.
  std::vector<const LogicalTensor*> given(const LogicalTensor& reference) const;

 private:
  struct Side {
    const SideValues& values;
    const RecordedCalls& calls;
  };
  struct Made {
    DerivedValue expected;
    std::string how;
    bool is_copy = false;
  };
  struct Term {
    std::string name;
    DerivedValue value;
  };
  const Relation* relation_of(const Identity&) const;
  enum class Choice : std::uint8_t { same, other_order, other };
  Choice choice_of_rows(const LogicalTensor* reference, const LogicalTensor& actual) const;
  std::optional<Made> made(const Side&, const LogicalTensor&) const;
  std::optional<Made> made_forward(const Side&, const LogicalTensor&) const;
  std::optional<Made> made_backward(const Side&, const LogicalTensor&) const;
  std::optional<Made> made_of_step(const Side&, const LogicalTensor&) const;
  std::optional<DerivedValue> gradient(const Side&, const Name& value, const Identity& frame) const;
  std::optional<Made> gradient_of_parameter(const Side&, const LogicalTensor&) const;
  std::set<std::int64_t> micro_batches_of(const Side&, const Name& param, std::int64_t step) const;
  std::optional<std::vector<Term>> gradient_terms(const Side&, const Name& value,
                                                  const Identity& frame) const;
  std::vector<Term> terms(const Side&, const LogicalTensor&) const;
  void add_terms(const LogicalTensor& actual, RightValue&) const;
  std::optional<Judgement> judge_number(const LogicalTensor& reference, const LogicalTensor& actual) const;
  std::optional<Diagnosis> mistake_in(const LogicalTensor& actual, const SideTensor& recorded) const;
  void add_roundings_of_addends(const Side&, const Name& value, const Identity& frame,
                                std::vector<Term>& terms) const;
  std::optional<DerivedValue> given_back(const Side&, const Name& value, const Use&,
                                         const Identity& frame) const;
  std::optional<DerivedValue> of_call(const Side&, const Name& input, const Name& value,
                                      const Identity& frame) const;
  std::optional<Call> with_computed_gradient(const Side&, const RecordedCall&, const std::string& module,
                                             const Tensor& result, const Identity& frame,
                                             Attributes& attributes) const;
  bool gives_nothing_back(const Identity& input) const;
  bool goes_into_no_loss(const Name& result, const Identity& frame) const;
  bool is_given_back_with_another(const Side&, const Use&, const std::vector<Use>& of_value,
                                  const Identity& frame) const;
  const LogicalTensor* recorded_gradient(const Side&, const Name& value, const Identity& frame) const;
  bool is_without_tokens(const Identity&) const;
  bool holds_in_reference(const LogicalTensor&);
  bool holds_with_other_attributes(const LogicalTensor&);
  bool makes_results(const FittedCalls::OfModule&, const LogicalTensor& gradient, const CallVariant&) const;
  bool has_no_factor(const LogicalTensor&) const;
  bool ends_here(const LogicalTensor&);
  bool find_added_losses();
  void join_aliases();
  bool has_gradient(const Name&) const;
  bool have_one_gradient(const Name&, const Name&) const;
  void lend(const Borrowed&, const SideValues&, RecordedCalls&) const;
  void lend(const HiddenCall&, const SideValues&, RecordedCalls&) const;

  struct Nearness {
    Made made;
    double ratio = 0;
    std::int64_t outside = 0;
  };
  std::optional<Nearness> nearness(const Side&, const LogicalTensor&) const;

  SideValues actual_, reference_;
  RecordedCalls &actual_calls_, &reference_calls_;
  FittedCalls& fitted_;
  Relations relations_;
  std::map<std::string, Condition> conditions_;  ///< by module
  HiddenLosses hidden_;
  StepScalars scalars_;
  double reference_sums_ = 1;
  LastResults& last_;
  mutable bool is_quick_ = false, was_quick_ = false;  ///< whether a part of what is allowed is asked for
  /// Whether what a call hands back is taken to reach a sum addend by addend.
  mutable bool is_apart_ = false, was_together_ = false;
};

}  // namespace assay
