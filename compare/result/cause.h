#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

/// What went wrong, as far as the numbers of a failing tensor prove it. A cause is added by its enumerator
/// and its row in cause.cpp, which has its name and its sentence; the compiler asks for the one without the
/// other.
enum class Cause : std::uint8_t {
  // Of the values alone.
  flipped_bit,
  sign,
  factor,
  row_factors,
  not_normalized,
  zeros,
  flushed,
  overflow,
  saturated,
  precision,
  permuted,
  repeated,
  transposed,
  shifted,
  rope_position,
  // Of other tensors of the run.
  partial_sum,
  stale,
  added,
  other_tensor,
  sum_of_pieces,
  left_out,
  missing_term,
  wrong_tokens,
  missing_layer,
  nonfinite,
  no_gradient,
  // Of the operator, on recorded inputs.
  weights,
  attribute,
  operation,
  input_precision,
  accumulator_precision,
  // Of the optimizer's step.
  betas,
  bias_correction,
  clip,
  epsilon,
  l2_decay,
  learning_rate,
  norm,
  not_updated,
  optimizer,
  step_sign,
  step_stale,
  updated,
  weight_decay,
  end  ///< none: the number of the others
};

/// "row_factors": stable, for programs.
std::string_view name(Cause);

/// How much a cause says. Of several, what was done comes first.
enum class Says : std::uint8_t {
  mistake,     ///< what was done
  effect,      ///< what it did to the values
  description  ///< how the values look: a number for each row
};
Says says(Cause);
/// Whether it is proved on the inputs of an optimizer's step.
bool is_of_optimizer(Cause);

/// The numbers of a cause. Each has those that its sentence needs (cause.cpp); the others are empty.
struct CauseParameters {
  std::optional<double> factor = {};           ///< actual / reference; of `added` that of the term
  std::optional<double> uncertainty = {};      ///< of the factor, absolute
  std::vector<std::string> factor_names = {};  ///< what else is the factor: "tp", "1/micro-batches"
  std::vector<double> factors = {};  ///< at each of `positions`; without them the smallest and the largest

  std::optional<std::int64_t> elements = {}, of = {};  ///< so many of so many elements, rows, tensors
  std::string along = {};                              ///< what is counted, or moved: "row", "columns"
  std::vector<std::int64_t> positions = {};
  std::optional<std::int64_t> shift = {};  ///< places up; of positions: how much too large

  std::optional<DType> dtype = {};     ///< the narrow one
  std::optional<DType> or_dtype = {};  ///< which the values do not tell from it
  std::optional<DType> actual_dtype = {}, reference_dtype = {};
  std::optional<Rounding> rounding = {};
  std::optional<bool> flushes = {};  ///< subnormals are zero
  std::optional<double> share = {};  ///< of the elements, bit for bit
  std::optional<double> limit = {};  ///< what stands where the reference is beyond it: a number, inf, nan
  std::optional<double> from = {};   ///< the smallest number of the reference that is beyond

  std::string axis = {};                  ///< of the mesh: "tp"
  std::optional<std::int64_t> rank = {};  ///< whose copy it is
  std::optional<std::int64_t> step = {}, micro_batch = {}, call = {};
  std::optional<bool> later = {};  ///< and in later steps
  std::vector<std::int64_t> micro_batches = {};
  std::vector<double> counts = {};  ///< how often each of them counts
  std::string term = {};            ///< "the bias"
  std::optional<bool> decays = {};  ///< it is the parameter itself
  std::string tensor = {};          ///< its name
  std::string module = {};
  std::string parameters = {};  ///< "all 83 parameters"

  std::string op = {}, reference_op = {};
  std::string operand = {};  ///< of it, in which the mistake lies: "x"
  std::string whole = {};    ///< a result of the module in which it is, made by this mistake
  std::string against =
      {};  ///< what made the golden values: an operator, or the actual side by its recorded flow
  std::string actual_attributes = {}, reference_attributes = {};  ///< "eps = 1e-6"
  std::string attribute = {};                                     ///< if it is one alone
  std::optional<double> value = {}, reference_value = {};  ///< of an attribute, a setting, what fills a gap
  std::optional<double> rope_base = {}, yarn_factor = {};

  std::optional<double> evidence = {};  ///< bits, where they are less than a proof: golden/evidence.h

  std::string how = {};  ///< the part of the sentence that the other parameters do not say
};

/// f(name, p.field..) of every field but `how`: what JSON has, and what expected answers may state.
template <class F, class... P>
void for_each_parameter(F f, P&... p) {
  f("factor", p.factor...);
  f("uncertainty", p.uncertainty...);
  f("factor_names", p.factor_names...);
  f("factors", p.factors...);
  f("elements", p.elements...);
  f("of", p.of...);
  f("along", p.along...);
  f("positions", p.positions...);
  f("shift", p.shift...);
  f("dtype", p.dtype...);
  f("or_dtype", p.or_dtype...);
  f("actual_dtype", p.actual_dtype...);
  f("reference_dtype", p.reference_dtype...);
  f("rounding", p.rounding...);
  f("flushes", p.flushes...);
  f("share", p.share...);
  f("limit", p.limit...);
  f("from", p.from...);
  f("axis", p.axis...);
  f("rank", p.rank...);
  f("step", p.step...);
  f("micro_batch", p.micro_batch...);
  f("call", p.call...);
  f("later", p.later...);
  f("micro_batches", p.micro_batches...);
  f("counts", p.counts...);
  f("term", p.term...);
  f("decays", p.decays...);
  f("tensor", p.tensor...);
  f("module", p.module...);
  f("parameters", p.parameters...);
  f("op", p.op...);
  f("operand", p.operand...);
  f("whole", p.whole...);
  f("against", p.against...);
  f("actual_attributes", p.actual_attributes...);
  f("reference_op", p.reference_op...);
  f("reference_attributes", p.reference_attributes...);
  f("attribute", p.attribute...);
  f("value", p.value...);
  f("reference_value", p.reference_value...);
  f("rope_base", p.rope_base...);
  f("yarn_factor", p.yarn_factor...);
  f("evidence", p.evidence...);
}

/// "2 = tp or pp"; just the number without names. The sign of the factor is kept.
std::string factor_text(double factor, std::span<const std::string> names);

}  // namespace assay
