// What a correct device may be off by, in each element of a result.
#include <algorithm>
#include <cmath>

#include "assay/compare/calls/call.h"
#include "assay/golden/accumulator.h"
#include "assay/golden/bound.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/recorded.h"

namespace assay {

namespace {

// The values of a bound are float64: to what errs more they are golden.
GoldenAndBound values_and_bound(const Operator& op, std::span<const NamedTensor> inputs,
                                const Attributes& attributes, const ErrorModel& device, std::string_view only,
                                const InputErrors& errors) {
  if (device.unit_roundoff > unit_roundoff(DType::float64))
    return compute_golden_and_bound(op, inputs, attributes, device, only, errors);
  return {compute_golden(op, inputs, attributes, Level::fp64, only),
          compute_bound(op, inputs, attributes, device, only, errors)};
}

}  // namespace

Device Device::of(DType result) {
  return {.arithmetic = result == DType::float64 ? DType::float64 : DType::float32};
}

void Device::see(DType dtype) {
  if (is_float(dtype) && unit_roundoff(dtype) > unit_roundoff(intermediate.value_or(arithmetic)))
    intermediate = dtype;
}

double Device::stored_roundoff() const {
  return unit_roundoff(intermediate.value_or(arithmetic));
}

ErrorModel Device::error_model() const {
  ErrorModel model{unit_roundoff(arithmetic), min_subnormal(arithmetic)};
  if (!accumulator.empty()) model.accumulator = parse_accumulator(accumulator);
  if (intermediate) model.stored_roundoff = stored_roundoff();
  return model;
}

// Half the distance of the format's numbers at a magnitude.
static double half_gap(const FloatFormat& f, double magnitude) {
  const int exponent = magnitude > 0 ? std::ilogb(magnitude) : f.min_exponent();
  return std::ldexp(0.5, std::clamp(exponent, f.min_exponent(), f.max_exponent()) - f.fraction_bits);
}

void allow_store(DType dtype, DType arithmetic, std::span<const double> values, std::span<double> allowed) {
  const double u = unit_roundoff(dtype), underflow = min_subnormal(dtype) / 2;
  if (u <= unit_roundoff(arithmetic)) return;
  // Of two numbers in a binade u |v| may be their whole distance: either would pass.
  if (const FloatFormat& f = format_of(dtype); f.fraction_bits == 1) {
    for (std::size_t i = 0; i < allowed.size(); ++i)
      allowed[i] += half_gap(f, std::abs(values[i]) + allowed[i]);
    return;
  }
  for (std::size_t i = 0; i < allowed.size(); ++i)
    allowed[i] += u * (std::abs(values[i]) + allowed[i]) + underflow;
}

std::vector<double> saturated(DType dtype, std::vector<double> values) {
  if (!is_float(dtype) || format_of(dtype).has_nan) return values;
  const double largest = max_finite(dtype);
  for (double& v : values) v = std::clamp(v, -largest, largest);  // NaN stays
  return values;
}

double with_error_of_golden(DType arithmetic) {
  return 1 + 0x1p-53 / unit_roundoff(arithmetic);
}

bool Call::keeps_results(const CallVariant& variant) const {
  ErrorModel device = device_.error_model();
  const auto errors = [&](const Summand& summand) {
    const auto bound = compute_bound(*summand.op, inputs_of(summand, variant, {}),
                                     attributes_of(summand, variant), device, summand.output, summand.errors);
    return output_named(bound, summand.output).values();
  };
  for (const Summand& summand : summands_) {
    device.stored_roundoff = 0;
    const std::vector<double> without = errors(summand);
    device.stored_roundoff = device_.stored_roundoff();
    if (errors(summand) != without) return true;
  }
  return false;
}

// Of each call, before its result is stored.
std::vector<std::vector<double>> Call::device_errors(const CallVariant& variant, bool quick) const {
  ErrorModel device = device_.error_model();
  device.quick = quick;
  const double stored = device_.stored_roundoff();
  const bool is_narrow = device_.intermediate.has_value();
  std::vector<std::vector<double>> errors;
  for (const Summand& summand : summands_) {
    const auto bound = compute_bound(*summand.op, inputs_of(summand, variant, {}),
                                     attributes_of(summand, variant), device, summand.output, summand.errors);
    errors.push_back(output_named(bound, summand.output).values());
    // One call in float32 has its parts in the order of its sum, which is any order.
    if (!quick && (is_narrow || summands_.size() > 1))
      allow_partial_sums(summand, variant, stored, errors.back());
  }
  return errors;
}

bool Call::knows_errors(const CallVariant& variant) const {
  return !device_errors_.empty() && is_same(errors_of_, variant);
}

const std::vector<std::vector<double>>& Call::known_errors(const CallVariant& variant) const {
  if (!knows_errors(variant)) {
    device_errors_ = device_errors(variant, false);
    errors_of_ = variant;
  }
  return device_errors_;
}

Call::Evaluated Call::evaluated(const CallVariant& variant, const Arithmetic& how, bool quick) const {
  if (!quick || knows_errors(variant)) return {golden(variant, how), known_errors(variant)};
  ErrorModel device = device_.error_model();
  device.quick = true;
  if (golden_ || how != Arithmetic{}) return {golden(variant, how), device_errors(variant, true)};
  Evaluated all;
  for (const Summand& summand : summands_) {
    const auto [values, errors] =
        values_and_bound(*summand.op, inputs_of(summand, variant, {}), attributes_of(summand, variant),
                         device, summand.output, summand.errors);
    all.golden.push_back(part_of(summand, variant, values));
    all.errors.push_back(output_named(errors, summand.output).values());
  }
  take_drawn(variant, all.golden);
  return all;
}

GoldenAndBound Call::all_results(const CallVariant& variant, bool quick, std::string_view only) const {
  const Summand& summand = summands_.front();
  if (summands_.size() != 1 || !summand.shared.empty()) return {};
  ErrorModel device = device_.error_model();
  device.quick = quick;
  return values_and_bound(*summand.op, inputs_of(summand, variant, {}), attributes_of(summand, variant),
                          device, only, summand.errors);
}

// Inputs and sums that are rounded otherwise hardly change what a device may lose before it stores the
// result.
std::vector<double> Call::allowed(const Evaluated& parts, const std::vector<double>& values,
                                  std::span<const double> golden_error) const {
  const DType dtype = result_.dtype();
  const double stored = device_.stored_roundoff();
  const bool is_narrow = device_.intermediate.has_value();
  std::vector<double> allowed(values.size(), 0);
  for (std::size_t c = 0; c < summands_.size(); ++c) {
    const Summand& summand = summands_[c];
    const std::vector<double> part = parts.golden[c].values(), &error = parts.errors[c];
    // Parts are stored and added up in any order, and their sum is multiplied; a bias is added to a product
    // that was stored narrow.
    const auto additions = static_cast<double>(summands_.size() - 1) + (factor_ == 1 ? 0 : 1);
    const Tensor* b = summand.output == "y" ? find_tensor(summand.inputs, "b") : nullptr;
    const std::vector<double> bias = b != nullptr ? b->values() : std::vector<double>();
    for (std::size_t i = 0; i < part.size(); ++i) {
      allowed[i] +=
          std::abs(factor_) * error[i] + (additions + (is_narrow ? 1 : 0)) * stored * std::abs(part[i]);
      if (is_narrow && !bias.empty())
        allowed[i] += stored * (std::abs(part[i]) + std::abs(bias[i % bias.size()]));
    }
  }
  const double own = with_error_of_golden(arithmetic());
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (golden_error.empty())
      allowed[i] *= own;
    else
      allowed[i] += golden_error[i];
  }
  allow_store(dtype, arithmetic(), values, allowed);
  return allowed;
}

std::vector<double> Call::allowed(const CallVariant& variant, const Tensor& golden,
                                  std::span<const double> golden_error) const {
  return allowed(Evaluated{{golden}, known_errors(variant)}, golden.values(), golden_error);
}

void Call::take_device_errors(const CallVariant& variant, std::vector<double> errors) {
  device_errors_ = {std::move(errors)};
  errors_of_ = variant;
}

void Call::take_golden(const CallVariant& variant, const Tensor& golden) {
  if (golden.size() == result_.size() && factor_ == 1 && variant.permutation.empty())
    golden_ = {variant, golden.reshaped(result_.shape())};
}

void Call::take_result(Tensor result) {
  result_ = std::move(result);
}

// R ranks each add up their part p_r of a sum, store it in the dtype in which it is sent, and it is stored
// again behind each of the R - 1 additions: to first order R roundings of no more than sum |p_r|
// (docs/semantics.md E: (n_extra + n_wire) u sum |terms|). The parts are computed from inputs that are 0
// elsewhere. Where no input has the sum's terms apart (the gradient of queries, whose keys lie on several
// ranks), the terms were stored themselves, so that the error has u sum |terms| >= u sum |p_r| in it already.
void Call::allow_partial_sums(const Summand& summand, const CallVariant& variant, double stored,
                              std::span<double> error) const {
  const std::vector<NamedTensor> whole =
      summand.shared.empty() ? std::vector<NamedTensor>() : inputs_of(summand, variant, {});
  for (const SharedSum& sum : summand.shared) {
    // Each rank may have added up its parts of all calls before.
    const auto ranks = static_cast<double>(sum.parts.size() + summands_.size() - 1);
    if (!sum.is_linear || !variant.permutation.empty()) {
      for (double& e : error) e *= 1 + ranks;
      continue;
    }
    std::vector<double> magnitude(error.size(), 0);
    for (const Parts::value_type& part : sum.parts) {
      std::vector<NamedTensor> inputs = whole;
      for (NamedTensor& input : inputs) {
        if (input.name == sum.input) input.tensor = only_part(input.tensor, sum.dim, part);
      }
      const auto outputs =
          compute_golden(*summand.op, inputs, attributes_of(summand, variant), Level::fp64, summand.output);
      const std::vector<double> of_part = output_named(outputs, summand.output).values();
      for (std::size_t i = 0; i < magnitude.size(); ++i) magnitude[i] += std::abs(of_part[i]);
    }
    for (std::size_t i = 0; i < error.size(); ++i) error[i] += ranks * stored * magnitude[i];
  }
}

}  // namespace assay
