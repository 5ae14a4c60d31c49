#include "assay/compare/calls/call.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "assay/compare/calls/fp8_operands.h"
#include "assay/compare/calls/relative_l2.h"
#include "assay/compare/measure/measure.h"
#include "assay/dumps/layout/layout.h"
#include "assay/golden/bound.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

Tensor permuted(const Tensor& t, const Shape& order) {
  if (order.empty() || t.shape().size() != order.size()) return t;
  const Shape dense = dense_strides(t.shape());
  Shape shape, strides;
  for (const std::int64_t d : order) {
    shape.push_back(t.shape()[static_cast<std::size_t>(d)]);
    strides.push_back(dense[static_cast<std::size_t>(d)]);
  }
  return gather_view(t, shape, strides, 0);
}

Tensor rounded(const Tensor& t, DType dtype, Rounding rounding) {
  if (!is_float(t.dtype()) || unit_roundoff(t.dtype()) >= unit_roundoff(dtype)) return t;
  std::vector<double> values = t.values();
  for (double& v : values) v = round_to(dtype, v, rounding);
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

Tensor times(Tensor t, double factor) {
  if (factor == 1) return t;
  std::vector<double> values = t.values();
  for (double& v : values) v *= factor;
  return Tensor(t.shape(), std::span<const double>(values));
}

std::vector<double> sum_of(const std::vector<Tensor>& parts) {
  std::vector<double> sum = parts.front().values();
  for (std::size_t p = 1; p < parts.size(); ++p) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[p].value(static_cast<std::int64_t>(i));
  }
  return sum;
}

// The extents of "N*" in a tensor of shape "N*,C", and how many follow them; nothing for other shapes.
struct Tokens {
  std::string_view letter;
  Shape extents, rest;
};
std::optional<Tokens> tokens_of(const Arg& arg, const Shape& shape) {
  const std::vector<Part> parts = parts_of(arg.shape);
  const auto is_starred = [](const Part& p) { return p.starred; };
  if (parts.empty() || !parts.front().starred || std::ranges::count_if(parts, is_starred) != 1) return {};
  if (shape.size() + 1 < parts.size()) return {};
  const auto end = shape.end() - static_cast<std::ptrdiff_t>(parts.size() - 1);
  return Tokens{parts.front().letter, Shape(shape.begin(), end), Shape(end, shape.end())};
}

// A module may make one token dimension of several: the gradient of its result has that one, its input not.
void take_tokens_of_inputs(const Operator& op, std::vector<NamedTensor>& inputs) {
  for (NamedTensor& gradient : inputs) {
    const Arg& arg = input_arg(op, gradient.name);
    const auto own = arg.role == Role::grad_output ? tokens_of(arg, gradient.tensor.shape()) : std::nullopt;
    if (!own) continue;
    for (const NamedTensor& input : inputs) {
      const Arg& given = input_arg(op, input.name);
      const auto other = given.role == Role::input ? tokens_of(given, input.tensor.shape()) : std::nullopt;
      if (!other || other->letter != own->letter || other->extents == own->extents) continue;
      Shape shape = other->extents;
      shape.insert(shape.end(), own->rest.begin(), own->rest.end());
      if (element_count(shape) == gradient.tensor.size()) gradient.tensor = gradient.tensor.reshaped(shape);
      break;
    }
  }
}

Tensor scale_of(const Tensor& weight, CallVariant::Weight how) {
  std::vector<double> values = weight.values();
  for (double& v : values) {
    v = how == CallVariant::Weight::left_out ? 1 : v + 1;
    if (how == CallVariant::Weight::rounded_plus_one) v = round_to(weight.dtype(), v);
  }
  return Tensor::from_values(DType::float64, weight.shape(), values);
}

// Of ranks that make the result together.
std::vector<CutInput> cuts_in_use(const Dump& dump, const RecordedCall& call) {
  std::vector<CutInput> cuts;
  if (!is_cut(dump)) return cuts;
  std::set<std::size_t> dims;
  for (const RecordedCall::Input& input : call.inputs)
    if (input.tensor->id.micro_batch >= 0) dims.merge(dims_of_ranks(dump, *input.tensor));
  for (const RecordedCall::Input& input : call.inputs) {
    const bool is_of_step = input.tensor->id.micro_batch < 0;
    cuts.push_back({input.name, is_of_step ? gathered_parts_of(dump, *input.tensor, dims)
                                           : parts_of(dump, *input.tensor)});
  }
  return cuts;
}

}  // namespace

Call::Call(const Dump& dump, std::vector<RecordedCall> calls, Tensor result)
    : result_(std::move(result)), device_(Device::of(result_.dtype())) {
  if (!calls.empty()) recorded_ = calls.front().attributes;
  for (RecordedCall& recorded : calls) {
    Summand summand{recorded.op, std::move(recorded.output), {}};
    for (const RecordedCall::Input& input : recorded.inputs) {
      if (without_bits(dump, *input.tensor) != nullptr)
        throw Error("{}: has no values", to_string(input.tensor->id));
      summand.inputs.push_back({input.name, merge(dump, *input.tensor).tensor.whole()});
      if (std::vector<double> errors = errors_of_addends(dump, *input.tensor); !errors.empty())
        summand.errors[input.name] = std::move(errors);
      if (is_cut(dump)) summand.cuts.push_back({input.name, parts_of(dump, *input.tensor)});
    }
    for (const RecordedCall::Input& input : recorded.inputs)  // parameters are of none
      summand.micro_batch = std::max(summand.micro_batch, input.tensor->id.micro_batch);
    summand.shared = shared_sums(*summand.op, summand.output, cuts_in_use(dump, recorded));
    if (summand.shared.empty()) take_tokens_of_inputs(*summand.op, summand.inputs);
    if (recorded.op->infer != nullptr) {
      Recorded call{summand.inputs, summand.output, result_};
      recorded.op->infer(call);
      std::erase_if(summand.errors, [&](const auto& of) { return call.input(of.first) == nullptr; });
      summand.shows_choice = summand.inputs.size() > recorded.inputs.size();
      summand.inferred = std::move(call.attributes);
    }
    summands_.push_back(std::move(summand));
  }
  device_.intermediate = narrowest();
}

Call::Call(const Operator& op, std::vector<NamedTensor> inputs, std::string output, Tensor result,
           Device device, InputErrors errors)
    : result_(std::move(result)), device_(std::move(device)) {
  summands_.push_back({&op, std::move(output), std::move(inputs)});
  summands_.back().errors = std::move(errors);
}

std::vector<NamedTensor> Call::inputs_of(const Summand& summand, const CallVariant& variant,
                                         const Arithmetic& how) const {
  std::vector<NamedTensor> inputs = summand.inputs;
  for (NamedTensor& input : inputs) {
    if (input.name == summand.op->gain && variant.weight != CallVariant::Weight::as_recorded)
      input.tensor = scale_of(input.tensor, variant.weight);
    input.tensor = permuted(input.tensor, variant.permutation);
    if (how.inputs) input.tensor = rounded(input.tensor, *how.inputs, how.rounding);
  }
  if (variant.fp8) take_fp8(summand.output, inputs, summand.cuts, how.tokens);
  return inputs;
}

// A tied table is looked up, scaled perhaps, and multiplied: the variant is that of the first.
Attributes Call::attributes_of(const Summand& summand, const CallVariant& variant) const {
  Attributes attributes = summand.op == &op() ? variant.attributes : Attributes();
  for (const auto& [name, value] : summand.inferred.values()) attributes.set(name, value);
  return attributes;
}

std::optional<NewCase> Call::as_case(const CallVariant& variant) const {
  if (summands_.size() != 1 || variant.fp8 || factor_ != 1) return {};
  const Summand& summand = summands_.front();
  return NewCase{.op = summand.op,
                 .name = "",
                 .attributes = attributes_of(summand, variant),
                 .inputs = inputs_of(summand, variant, {}),
                 .outputs = {{summand.output, permuted(result_, variant.permutation)}},
                 .with_outputs = true};
}

// Of the result and all inputs; nothing if none is coarser than the arithmetic.
std::optional<DType> Call::narrowest() const {
  Device seen{.arithmetic = arithmetic()};
  seen.see(result_.dtype());
  for (const Summand& summand : summands_) {
    for (const NamedTensor& input : summand.inputs) seen.see(input.tensor.dtype());
  }
  return seen.intermediate;
}

std::vector<Tensor> Call::golden(const CallVariant& variant, const Arithmetic& how) const {
  if (golden_ && is_same(golden_->first, variant) && how == Arithmetic{}) return {golden_->second};
  const SummationScope scope(how.sums);
  std::vector<Tensor> parts;
  for (const Summand& summand : summands_)
    parts.push_back(part_of(summand, variant,
                            compute_golden(*summand.op, inputs_of(summand, variant, how),
                                           attributes_of(summand, variant), Level::fp64, summand.output)));
  take_drawn(variant, parts);
  return parts;
}

Tensor Call::part_of(const Summand& summand, const CallVariant& variant,
                     std::span<const NamedTensor> outputs) const {
  const Shape expected = permuted(result_, variant.permutation).shape();
  const Tensor& made = output_named(outputs, summand.output);
  // Token dimensions may be recorded as one.
  if (made.size() != element_count(expected)) throw Error("{}: makes another shape", summand.op->name);
  return times(made.reshaped(expected), factor_);
}

std::vector<double> Call::values(const CallVariant& variant, const Arithmetic& how) const {
  return sum_of(golden(variant, how));
}

std::vector<Arithmetic> Call::admissible_arithmetics(const CallVariant& variant) const {
  if (variant.fp8) {
    const bool has_ranks = std::ranges::any_of(summands_, [](const Summand& c) { return !c.cuts.empty(); });
    if (!has_ranks || summands_.front().output != "grad_w") return {};
    return {{.tokens = TokenBlocks::cut}};
  }
  if (op().narrowing == Narrowing::none) return {};
  DType narrowest = result_.dtype(), widest = result_.dtype();
  if (!is_float(narrowest)) return {};
  for (const NamedTensor& input : summands_.front().inputs) {
    const DType dtype = input.tensor.dtype();
    if (!is_float(dtype)) continue;
    if (unit_roundoff(dtype) > unit_roundoff(narrowest)) narrowest = dtype;
    if (unit_roundoff(dtype) < unit_roundoff(widest)) widest = dtype;
  }
  if (narrowest == widest) return {};
  return {{.inputs = narrowest}};
}

std::optional<Call::Compared> Call::compare(const CallVariant& variant, const Arithmetic& how,
                                            bool as_a_whole) const {
  return compare(variant, how, as_a_whole, false);
}

std::optional<Call::Compared> Call::compare_quickly(const CallVariant& variant) const {
  auto c = compare(variant, {}, true, true);
  return c && c->within() ? c : std::nullopt;
}

std::optional<Call::Compared> Call::expected(const CallVariant& variant, bool quick) const {
  return compare(variant, {}, false, quick);
}

std::optional<Call::Compared> Call::compare(const CallVariant& variant, const Arithmetic& how,
                                            bool as_a_whole, bool quick) const {
  Compared c;
  c.actual = permuted(result_, variant.permutation);
  try {
    const bool has_bound = is_float(c.actual.dtype());
    const Evaluated made = has_bound ? evaluated(variant, how, quick) : Evaluated{golden(variant, how), {}};
    const std::vector<double> values = saturated(c.actual.dtype(), sum_of(made.golden));
    c.golden = Tensor(c.actual.shape(), std::span<const double>(values));
    if (!has_bound) {
      c.worst_at = first_wrong_index(variant, c.actual.values(), values, c.ties);
      c.ratio = c.worst_at < 0 ? 0 : infinity;
      return c;
    }
    c.allowed = allowed(made, values);
    const Metrics m = measure(c.actual, c.golden, {0, 0, c.allowed});
    c.ratio = m.special_mismatch > 0 ? infinity : m.worst_ratio;
    c.worst_at = worst_element(m);
    if (as_a_whole) c.scale = scale(variant, c);
    if (const std::int64_t row = c.ratio <= 1 ? first_wrong_row(variant, c.ties) : -1; row >= 0) {
      c.worst_at = row * c.actual.shape().back();
      c.ratio = infinity;
    }
    return c;
  } catch (const Error&) {  // not from these inputs
    return std::nullopt;
  }
}

std::optional<double> Call::ratio(const CallVariant& variant, const Arithmetic& how) const {
  const std::optional<Compared> compared = compare(variant, how);
  return compared ? std::optional(compared->ratio) : std::nullopt;
}

bool Call::may_fit(const CallVariant& variant, const Arithmetic& how) const {
  try {
    const Tensor actual = permuted(result_, variant.permutation);
    const std::vector<double> golden = values(variant, how);
    if (!is_float(actual.dtype())) return true;
    return relative_l2(actual.values(), golden) <= may_fit_within;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace assay
