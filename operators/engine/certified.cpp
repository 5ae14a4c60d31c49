#include "assay/operators/engine/certified.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "assay/operators/engine/binding.h"

namespace assay {
namespace {

// The arithmetic of evaluate<Bound> itself: float64, whose exact operations add no error.
const ErrorModel own_arithmetic{.unit_roundoff = 0x1p-53, .min_subnormal = 0x1p-1074, .own = true};
// Truth has 50 digits, 2^-166, in the exponent range of MPFR; 2^-160 leaves room for the float64 that the
// error is computed in. A proof takes the guaranteed bound of its sums.
const ErrorModel truth_arithmetic{0x1p-160, 0, Accumulator{.unit_roundoff = 0x1p-160, .worst_case = true}};

// The next float32 away from zero or towards it, on and on beyond the largest finite one: 2^128 stands for
// infinity, to which what is half way rounds.
double neighbour(float f, float towards) {
  const float next = std::nextafter(f, towards);
  return std::isinf(next) ? std::copysign(0x1p128, next) : next;
}
double middle(float f, float towards) {
  return (neighbour(f, towards) + (std::isinf(f) ? std::copysign(0x1p128, f) : f)) / 2;
}

// The float32 that every real number within `error` of `value` rounds to, if there is one.
std::optional<float> only_rounding(double value, double error) {
  if (!std::isfinite(value))
    return error == 0 || std::isnan(value) ? std::optional(static_cast<float>(value)) : std::nullopt;
  // The error is itself a float64, and so are the ends: 2^-50 of either covers their roundings.
  const double reach = error == 0 ? 0 : error * (1 + 0x1p-50) + std::abs(value) * 0x1p-52;
  const auto low = static_cast<float>(value - reach), high = static_cast<float>(value + reach);
  if (low != high || std::signbit(low) != std::signbit(high)) return std::nullopt;
  return low;
}

// The float32 nearest to the real number, and whether all within `error` of it agree.
struct Rounded {
  float value;
  bool proved;
};
Rounded round_truth(const Truth& real, double error) {
  if (isnan(real) || isinf(real))
    return {static_cast<float>(static_cast<double>(real)), error == 0 || isnan(real)};
  auto nearest = static_cast<float>(static_cast<double>(real));
  const auto above = [](float f) { return Truth(middle(f, static_cast<float>(infinity))); };
  const auto below = [](float f) { return Truth(middle(f, static_cast<float>(-infinity))); };
  // By way of float64 it may have been rounded twice.
  if (!std::isinf(nearest) && real > above(nearest))
    nearest = std::nextafter(nearest, static_cast<float>(infinity));
  if (!std::isinf(nearest) && real < below(nearest))
    nearest = std::nextafter(nearest, static_cast<float>(-infinity));
  const Truth reach(error);
  const bool under = nearest == static_cast<float>(infinity) || real + reach < above(nearest);
  const bool over = nearest == static_cast<float>(-infinity) || real - reach > below(nearest);
  return {nearest, under && over && std::isfinite(error)};
}

Tensors<Bound> evaluate_bound(const Operator& op, std::span<const NamedTensor> inputs,
                              const Attributes& attributes, const ErrorModel& model) {
  const ErrorScope scope(model);
  return evaluate<Bound>(op, inputs, attributes);
}

// Evaluated when first asked for: few calls need it.
class FiftyDigits {
 public:
  FiftyDigits(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& attributes)
      : op_(op), inputs_(inputs), attributes_(attributes) {}
  Rounded round(const std::string& name, std::size_t i) {
    if (!truths_) {
      truths_ = evaluate<Truth>(op_, inputs_, attributes_);
      bounds_ = evaluate_bound(op_, inputs_, attributes_, truth_arithmetic);
    }
    const Truth& truth = truths_->slot(name).values[i];
    const Bound& bound = bounds_->slot(name).values[i];
    // The error is relative to a float64, which may have underflowed or overflowed.
    const bool lost = bound.value == 0 ? !(truth == Truth(0))
                                       : !std::isfinite(bound.value) && !isnan(truth) && !isinf(truth);
    return round_truth(truth, lost ? infinity : 2 * bound.error);
  }

 private:
  const Operator& op_;
  std::span<const NamedTensor> inputs_;
  const Attributes& attributes_;
  std::optional<Tensors<Truth>> truths_;
  std::optional<Tensors<Bound>> bounds_;
};

CertifiedTensor certify(const std::string& name, const Tensors<Bound>::Slot& slot,
                        FiftyDigits& fifty_digits) {
  Proof proof;
  if (holds_indices(*slot.arg)) {
    proof.exact = element_count(slot.shape);
    return {{name, Tensor::from_indices(slot.shape, slot.indices)}, proof};
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < slot.values.size(); ++i) {
    const Bound& result = slot.values[i];
    if (const auto only = only_rounding(result.value, result.error)) {
      ++(result.error == 0 || std::isnan(*only) ? proof.exact : proof.certified);
      values.push_back(std::isnan(*only) ? std::numeric_limits<double>::quiet_NaN() : *only);
    } else {
      const Rounded repaired = fifty_digits.round(name, i);
      ++(repaired.proved ? proof.repaired : proof.unproved);
      values.push_back(repaired.value);
    }
  }
  return {{name, Tensor::from_values(DType::float32, slot.shape, values)}, proof};
}

bool fit_float32(const Operator& op, std::span<const NamedTensor> inputs) {
  return std::ranges::all_of(inputs, [&](const NamedTensor& input) {
    if (holds_indices(input_arg(op, input.name))) return true;
    return std::ranges::all_of(input.tensor.values(), [](double v) {
      return std::isnan(v) || static_cast<double>(static_cast<float>(v)) == v;
    });
  });
}

using Outputs = std::map<std::string, CertifiedTensor>;

// What the operator's own fast way certifies.
// @return  whether that is all of the outputs
bool certify_fast(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& attributes,
                  Outputs& outputs) {
  if (op.certify == nullptr || !fit_float32(op, inputs)) return false;
  auto call = prepare<float>(op, inputs, attributes);
  Proofs proofs;
  op.certify(call.tensors, call.dims, call.attributes, proofs);
  for (const auto& [name, proof] : proofs) {
    const auto& slot = call.tensors.slot(name);
    outputs[name] = {{name, Tensor(slot.shape, std::span<const float>(slot.values))}, proof};
  }
  return std::ranges::all_of(call.tensors.slots(), [&](const auto& made) {
    return is_given(*made.second.arg) || outputs.contains(made.first);
  });
}

}  // namespace

std::vector<CertifiedTensor> compute_certified(const Operator& op, std::span<const NamedTensor> inputs,
                                               const Attributes& attributes) {
  Outputs found;
  if (!certify_fast(op, inputs, attributes, found)) {
    const Tensors<Bound> results = evaluate_bound(op, inputs, attributes, own_arithmetic);
    FiftyDigits fifty_digits(op, inputs, attributes);
    for (const auto& made : results.slots()) {
      if (is_given(*made.second.arg) || found.contains(made.first)) continue;
      found[made.first] = certify(made.first, made.second, fifty_digits);
    }
  }
  std::vector<CertifiedTensor> outputs;
  for (const Arg& arg : op.args) {
    if (is_given(arg)) continue;
    std::map<std::int64_t, CertifiedTensor*> members;
    for (auto& [name, output] : found) {
      if (const auto number = member_number(arg, name)) members[*number] = &output;
    }
    for (auto& [number, member] : members) outputs.push_back(std::move(*member));
  }
  return outputs;
}

}  // namespace assay
