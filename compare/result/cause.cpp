#include "assay/compare/result/cause.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/sentences.h"

namespace assay {
namespace {

using Parameters = CauseParameters;

struct Row {
  Cause cause;
  std::string_view name;
  Says says;
  std::string (*sentence)(const Parameters&, double residual);
  bool of_optimizer = false;
};

using namespace sentences;

std::string how(const Parameters& p, double) {
  return p.how;
}

// "2 x reference (2 = tp)"
std::string multiple(const Parameters& p) {
  const double k = p.factor.value();
  return fmt::format("{:.7g} x reference{}", k,
                     p.factor_names.empty() ? "" : fmt::format(" ({})", factor_text(k, p.factor_names)));
}

// A factor near 1 with two digits of its distance from 1.
std::string factor_by_distance(double k) {
  constexpr int usual = 6, most = 12;
  const double distance = std::abs(k - 1);
  const int digits = distance > 0 ? static_cast<int>(std::ceil(-std::log10(distance))) + 2 : usual;
  return fmt::format("{:.{}g}", k, std::clamp(digits, usual, most));
}

std::string factor(const Parameters& p, double residual) {
  if (p.uncertainty && !p.how.empty())
    return fmt::format("actual = {} x {} (+- {:.1g}); {}", factor_by_distance(p.factor.value()), p.how,
                       *p.uncertainty, left(residual));
  if (p.uncertainty)
    return fmt::format("actual = {} x what {} makes of its own inputs (+- {:.1g}); {}",
                       factor_by_distance(p.factor.value()), p.op, *p.uncertainty, left(residual));
  if (p.elements)
    return fmt::format("{} of {} elements are {}, all others pass", *p.elements, p.of.value(), multiple(p));
  const std::string follows =
      p.tensor.empty() ? "" : fmt::format(", as in {}, which follows from it", p.tensor);
  return "actual = " + multiple(p) + follows;
}

std::string row_factors(const Parameters& p, double) {
  const std::int64_t changed = p.elements.value(), count = p.of.value();
  const std::string how_many =
      changed == count ? fmt::format("all {}", count) : fmt::format("{} of {}", changed, count);
  const std::string_view others = changed == count ? "" : ", the others are right";
  std::string text = fmt::format("every {} is a multiple of the reference's: ", p.along);
  if (p.factor && p.positions.empty())
    return fmt::format("{}{} times {:.6g}{}", text, how_many, *p.factor, others);
  if (p.positions.empty())
    return fmt::format("{}{} by factors of their own from {:.6g} to {:.6g}", text, how_many, p.factors.at(0),
                       p.factors.at(1));
  for (std::size_t i = 0; i < p.positions.size(); ++i) {
    const std::string& named = p.factor_names.at(i);
    text += fmt::format("{}[{}] times {}", i == 0 ? "" : ", ", p.positions[i],
                        factor_text(p.factors.at(i), std::span(&named, named.empty() ? 0 : 1)));
  }
  return fmt::format("{}{}", text, others);
}

std::string not_normalized(const Parameters& p, double) {
  return fmt::format(
      "every row is the reference's before it is divided by its sum: rows of the reference sum to {:.6g}, "
      "these "
      "to {:.6g} to {:.6g}",
      p.reference_value.value(), p.factors.at(0), p.factors.at(1));
}

std::string zeros(const Parameters& p, double) {
  if (!p.elements) return "every element is zero";
  return fmt::format("{} of {} elements are outside, all of them exactly zero where the reference is not",
                     *p.elements, p.of.value());
}

std::string flushed(const Parameters& p, double) {
  const DType d = p.dtype.value();
  return fmt::format(
      "{} elements are zero where the reference is below {:.3g}, {}'s smallest normal number, and none "
      "elsewhere: subnormals are flushed",
      p.elements.value(), std::ldexp(1.0, format_of(d).min_exponent()), name(d));
}

std::string beyond_limit(const Parameters& p, double) {
  const double limit = p.limit.value();
  if (!p.dtype)
    return fmt::format(
        "{} elements are +-{:.7g}, the largest that occurs, where the reference is larger: clipped there",
        p.elements.value(), limit);
  const std::string what = std::isnan(limit)   ? std::string("NaN")
                           : std::isinf(limit) ? std::string("infinite")
                                               : fmt::format("+-{:g}", limit);
  return fmt::format(
      "{} elements are {} where the reference is beyond {}'s largest number {:g} (from {:.6g} on), and none "
      "elsewhere",
      p.elements.value(), what, name(*p.dtype), max_finite(*p.dtype), p.from.value());
}

std::string_view words(Rounding r) {
  switch (r) {
    case Rounding::nearest_even:
      return "rounded to nearest even";
    case Rounding::nearest_away:
      return "rounded to nearest, ties away";
    case Rounding::toward_zero:
      break;
  }
  return "truncated";
}

std::string precision(const Parameters& p, double) {
  const DType narrow = p.dtype.value(), actual = p.actual_dtype.value();
  const std::string either =
      p.or_dtype ? fmt::format("{} or {}", name(narrow), name(*p.or_dtype)) : std::string(name(narrow));
  const std::string what =
      narrow == actual
          ? fmt::format("{} where the reference is {}", name(actual), name(p.reference_dtype.value()))
          : fmt::format("{} in name, but every element is a {} number", name(actual), either);
  const std::string rounded = fmt::format("the reference {} to it{}", words(p.rounding.value()),
                                          p.flushes.value() ? ", subnormals flushed to zero," : "");
  return fmt::format("{}: {} ({:.4g}% of the elements bit for bit)", what,
                     p.how.empty() ? rounded : p.how + ", " + rounded, 100 * p.share.value());
}

std::string shifted(const Parameters& p, double) {
  const std::int64_t by = p.shift.value(), places = std::abs(by);
  return fmt::format("the {0} are shifted by {1}: index i holds the reference's i {2} {3}; the {4} {3} {5}",
                     p.along, by, by > 0 ? "-" : "+", places, by > 0 ? "first" : "last",
                     p.value ? "are zero" : "hold something else");
}

std::string rope_position(const Parameters& p, double) {
  const std::string yarn =
      p.yarn_factor ? fmt::format(" with YaRN's factor {:g}", *p.yarn_factor) : std::string();
  return fmt::format("{}: rotated as RoPE of base {:g}{} over {}", p.how, p.rope_base.value(), yarn, p.along);
}

// "micro-batches 0, 1, 2, 3 count 0, 0, 0, 1 times"
std::string weights(const Parameters& p, double residual) {
  std::vector<std::string> counts;
  for (const double c : p.counts) counts.push_back(fmt::format("{:.4g}", c));
  return fmt::format("micro-batches {} count {} times, each once in the reference; {}",
                     fmt::join(p.micro_batches, ", "), fmt::join(counts, ", "), left(residual));
}

std::string nonfinite(const Parameters& p, double) {
  const std::string begins = p.tensor.empty()
                                 ? fmt::format("nothing recorded before it is, in this micro-batch")
                                 : fmt::format("as are those of {}, before it", p.tensor);
  return fmt::format("{} of {} elements are {}: {}", p.elements.value(), p.of.value(), p.how, begins);
}

std::string attribute(const Parameters& p, double residual) {
  return fmt::format("it is {} with {}, where the reference has {}; {}", p.op, p.actual_attributes,
                     p.reference_attributes, left(residual));
}

std::string operation(const Parameters& p, double residual) {
  return fmt::format("it is {}, where the reference has {}; {}", p.op, p.reference_op, left(residual));
}

std::string narrow_arithmetic(const Parameters& p, double residual) {
  return fmt::format("it is {} {}; {}", p.op, p.how, left(residual));
}

std::string of_step(const Parameters& p, double residual) {
  return fmt::format("{}{}{} (step {}{}; {})", p.how, p.parameters.empty() ? "" : "; ", p.parameters,
                     p.step.value(), p.later.value_or(false) ? " and later" : "", left(residual));
}

constexpr Row of_optimizer(Cause cause, std::string_view name) {
  return {cause, name, Says::effect, of_step, true};
}

// In the order of the enumerators.
constexpr Row rows[] = {
    {Cause::flipped_bit, "flipped_bit", Says::description, how},
    {Cause::sign, "sign", Says::effect,
     [](const Parameters&, double) { return std::string("actual = -reference: the sign is flipped"); }},
    {Cause::factor, "factor", Says::effect, factor},
    {Cause::row_factors, "row_factors", Says::description, row_factors},
    {Cause::not_normalized, "not_normalized", Says::effect, not_normalized},
    {Cause::zeros, "zeros", Says::effect, zeros},
    {Cause::flushed, "flushed", Says::effect, flushed},
    {Cause::overflow, "overflow", Says::effect, beyond_limit},
    {Cause::saturated, "saturated", Says::effect, beyond_limit},
    {Cause::precision, "precision", Says::effect, precision},
    {Cause::permuted, "permuted", Says::effect, how},
    {Cause::repeated, "repeated", Says::effect, how},
    {Cause::transposed, "transposed", Says::effect, how},
    {Cause::shifted, "shifted", Says::effect, shifted},
    {Cause::rope_position, "rope_position", Says::effect, rope_position},
    {Cause::partial_sum, "partial_sum", Says::mistake, partial_sum},
    {Cause::stale, "stale", Says::mistake, stale},
    {Cause::added, "added", Says::effect, added},
    {Cause::other_tensor, "other_tensor", Says::mistake, other_tensor},
    {Cause::sum_of_pieces, "sum_of_pieces", Says::mistake, sum_of_pieces},
    {Cause::left_out, "left_out", Says::mistake, left_out},
    {Cause::missing_term, "missing_term", Says::mistake, missing_term},
    {Cause::wrong_tokens, "wrong_tokens", Says::mistake, how},
    {Cause::missing_layer, "missing_layer", Says::mistake, missing_layer},
    {Cause::nonfinite, "nonfinite", Says::description, nonfinite},
    {Cause::no_gradient, "no_gradient", Says::mistake, how},
    {Cause::weights, "weights", Says::mistake, weights},
    {Cause::attribute, "attribute", Says::mistake, attribute},
    {Cause::operation, "operation", Says::mistake, operation},
    {Cause::input_precision, "input_precision", Says::mistake, narrow_arithmetic},
    {Cause::accumulator_precision, "accumulator_precision", Says::mistake, narrow_arithmetic},
    of_optimizer(Cause::betas, "betas"),
    of_optimizer(Cause::bias_correction, "bias_correction"),
    of_optimizer(Cause::clip, "clip"),
    of_optimizer(Cause::epsilon, "epsilon"),
    of_optimizer(Cause::l2_decay, "l2_decay"),
    of_optimizer(Cause::learning_rate, "learning_rate"),
    of_optimizer(Cause::norm, "norm"),
    of_optimizer(Cause::not_updated, "not_updated"),
    {Cause::optimizer, "optimizer", Says::mistake, how, true},
    of_optimizer(Cause::step_sign, "step_sign"),
    of_optimizer(Cause::step_stale, "step_stale"),
    of_optimizer(Cause::updated, "updated"),
    of_optimizer(Cause::weight_decay, "weight_decay"),
};

constexpr bool are_in_order() {
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    if (rows[i].cause != static_cast<Cause>(i)) return false;
  }
  return std::size(rows) == static_cast<std::size_t>(Cause::end);
}
static_assert(are_in_order(), "a row for each cause, in the order of the enumerators");

const Row& row_of(Cause cause) {
  return rows[static_cast<std::size_t>(cause)];
}

// The sentences of the others name their operand.
bool is_of_operand(const Diagnosis& d) {
  return !d.parameters.operand.empty() && d.cause != Cause::left_out && d.cause != Cause::input_precision;
}

}  // namespace

std::string_view name(Cause cause) {
  return row_of(cause).name;
}

Says says(Cause cause) {
  return row_of(cause).says;
}

bool is_of_optimizer(Cause cause) {
  return row_of(cause).of_optimizer;
}

std::string sentence(const Diagnosis& d) {
  std::string text = row_of(d.cause).sentence(d.parameters, d.residual);
  if (is_of_operand(d))
    text = fmt::format("{} was given another {}: {}", d.parameters.op, d.parameters.operand, text);
  if (!d.parameters.whole.empty())
    text = fmt::format("the module around it makes {} wrongly: {}", d.parameters.whole, text);
  if (d.parameters.rank) text = fmt::format("the copy of rank {}: {}", *d.parameters.rank, text);
  if (d.parameters.evidence)
    text += fmt::format(" (of one number: {:.0f} bits of evidence)", *d.parameters.evidence);
  if (!d.parameters.against.empty())
    text += fmt::format(" (against what {} makes of its own inputs)", d.parameters.against);
  return text;
}

std::string factor_text(double factor, std::span<const std::string> names) {
  if (names.empty()) return fmt::format("{:.7g}", factor);
  return fmt::format("{:.7g} = {}{}", factor, factor < 0 ? "-" : "", fmt::join(names, " or "));
}

}  // namespace assay
