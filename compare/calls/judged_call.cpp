#include "assay/compare/calls/judged_call.h"

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/fp8_operands.h"
#include "assay/compare/measure/measure.h"
#include "assay/dumps/layout/layout.h"
#include "assay/golden/bound.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// Larger results are judged in some rows only. This amount of work takes about a second.
constexpr double enough_work = 0x1p24;

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

std::vector<double> sum_of(const std::vector<Tensor>& parts) {
  std::vector<double> sum = parts.front().values();
  for (std::size_t p = 1; p < parts.size(); ++p) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[p].value(static_cast<std::int64_t>(i));
  }
  return sum;
}

Tensor scale_of(const Tensor& weight, CallVariant::Weight how) {
  std::vector<double> values = weight.values();
  for (double& v : values) v = how == CallVariant::Weight::plus_one ? v + 1 : 1;
  return Tensor::from_values(DType::float64, weight.shape(), values);
}

}  // namespace

JudgedCall::JudgedCall(const Dump& dump, std::vector<RecordedCall> calls, Tensor result, std::int64_t worst)
    : result_(std::move(result)) {
  for (RecordedCall& recorded : calls) {
    Summand summand{recorded.op, std::move(recorded.output), {}};
    for (const RecordedCall::Input& input : recorded.inputs) {
      if (without_bits(dump, *input.tensor) != nullptr)
        throw Error("{}: has no values", to_string(input.tensor->id));
      summand.inputs.push_back({input.name, merge(dump, *input.tensor).tensor.whole()});
      if (dump.world_size > 1) summand.cuts.push_back({input.name, parts_of(dump, *input.tensor)});
    }
    for (const RecordedCall::Input& input : recorded.inputs)  // parameters are of none
      summand.micro_batch = std::max(summand.micro_batch, input.tensor->id.micro_batch);
    summand.shared = shared_sums(*summand.op, summand.output, summand.cuts);
    reshape_token_index(summand);
    summands_.push_back(std::move(summand));
  }
  sample_rows(worst);
}

// The loss of a router sees its tokens by sequence, its choice was recorded as one list of tokens.
void JudgedCall::reshape_token_index(Summand& summand) {
  const Tensor* logits = find_tensor(summand.inputs, "logits");
  if (summand.op->name != "moe_aux_loss" || logits == nullptr || logits->shape().empty()) return;
  for (NamedTensor& input : summand.inputs) {
    if (input.name != "index" || input.tensor.shape().empty()) continue;
    Shape shape = logits->shape();
    shape.back() = input.tensor.shape().back();
    if (element_count(shape) == input.tensor.size()) input.tensor = input.tensor.reshaped(shape);
  }
}

void JudgedCall::sample_rows(std::int64_t worst) {
  if (summands_.size() != 1 || work() <= enough_work) return;
  Summand& summand = summands_.front();
  if (summand.op->name.starts_with("moe_")) return;  // places and losses of its rows count all of them
  const auto has_rows = [](const Arg& arg) {
    return arg.shape.starts_with("N*,") && arg.shape.find(',', 3) == std::string_view::npos;
  };
  const Arg& output = output_arg(*summand.op, summand.output);
  const std::int64_t columns = result_.shape().empty() ? 0 : result_.shape().back();
  if (!has_rows(output) || columns == 0) return;
  const std::int64_t rows = result_.size() / columns;
  for (const NamedTensor& input : summand.inputs) {
    const Arg& arg = input_arg(*summand.op, input.name);
    const bool fits = has_rows(arg) && !input.tensor.shape().empty() && input.tensor.shape().back() > 0 &&
                      input.tensor.size() / input.tensor.shape().back() == rows;
    if (!fits && arg.shape.find('N') != std::string_view::npos) return;
  }
  const auto most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(static_cast<double>(rows) * enough_work / work()), 1, rows);
  // Evenly over the tensor, one of them the worst.
  const std::int64_t step = (rows + most - 1) / most;
  const std::int64_t first = std::max<std::int64_t>(worst, 0) / columns % step;
  const std::int64_t kept = (rows - first - 1) / step + 1;
  const auto some_rows = [&](const Tensor& t) {
    const std::int64_t width = t.shape().back();
    return gather_view(t, {kept, width}, {step * width, 1}, first * width);
  };
  for (NamedTensor& input : summand.inputs) {
    if (has_rows(input_arg(*summand.op, input.name))) input.tensor = some_rows(input.tensor);
  }
  result_ = some_rows(result_);
}

double JudgedCall::coarsest_roundoff() const {
  double coarsest = unit_roundoff(result_.dtype());
  for (const Summand& summand : summands_) {
    for (const NamedTensor& input : summand.inputs) {
      if (is_float(input.tensor.dtype())) coarsest = std::max(coarsest, unit_roundoff(input.tensor.dtype()));
    }
  }
  return coarsest;
}

DType JudgedCall::arithmetic() const {
  return result_.dtype() == DType::float64 ? DType::float64 : DType::float32;
}

double JudgedCall::work() const {
  double work = 0;
  for (const Summand& summand : summands_) {
    double count = 1;
    try {
      count = std::max(1.0, static_cast<double>(accumulation_count(*summand.op, summand.output,
                                                                   shapes_of(summand.inputs), {})));
    } catch (const Error&) {  // it needs attributes: the inputs' sizes have to do
    }
    work += count * static_cast<double>(result_.size());
    for (const NamedTensor& input : summand.inputs) work += static_cast<double>(input.tensor.size());
  }
  return work;
}

std::vector<NamedTensor> JudgedCall::inputs_of(const Summand& summand, const CallVariant& variant,
                                               const Arithmetic& how) const {
  std::vector<NamedTensor> inputs = summand.inputs;
  for (NamedTensor& input : inputs) {
    if (input.name == "weight" && variant.weight != CallVariant::Weight::as_recorded)
      input.tensor = scale_of(input.tensor, variant.weight);
    input.tensor = permuted(input.tensor, variant.permutation);
    if (how.inputs) input.tensor = rounded(input.tensor, *how.inputs, how.rounding);
  }
  if (variant.fp8) take_fp8(summand.output, inputs, summand.cuts, how.tokens);
  return inputs;
}

Attributes JudgedCall::attributes_of(const Summand& summand, const CallVariant& variant) const {
  Attributes attributes = variant.attributes;
  const auto extent = [&](const Tensor& t) {
    if (t.shape().empty()) throw Error("{}: a single number, expected a last dimension", summand.op->name);
    return static_cast<double>(t.shape().back());
  };
  const auto given = [&](const char* name) { return find_tensor(summand.inputs, name); };
  if (summand.op->name == "router_topk" && !result_.shape().empty())
    attributes.set("top_k", extent(given("chosen") != nullptr ? *given("chosen") : result_));
  if (summand.op->name == "moe_aux_loss" && given("index") != nullptr)
    attributes.set("top_k", extent(*given("index")));
  // Weighted before, by probs that it has not: the place of a row is t K + k.
  if (summand.op->name == "moe_unpermute" && given("probs") == nullptr && given("sorted_index") != nullptr) {
    const Tensor& tokens = given("grad_y") != nullptr ? *given("grad_y") : result_;
    const std::vector<std::int64_t> places = given("sorted_index")->indices();
    if (!tokens.shape().empty() && tokens.shape().front() > 0 && !places.empty()) {
      const std::int64_t N = tokens.shape().front();
      attributes.set("num_tokens", static_cast<double>(N));
      const std::int64_t last = std::ranges::max(places) / N;
      attributes.set("top_k", static_cast<double>(last) + 1);
    }
  }
  if (summand.op->name == "expand") {
    const Shape& shape = given("grad_y") != nullptr ? given("grad_y")->shape() : result_.shape();
    attributes.set("shape", std::vector<double>(shape.begin(), shape.end()));
  }
  // Experts behind the last one chosen get nothing.
  if (summand.op->name == "moe_permute" && summand.output == "tokens_per_expert" && !result_.shape().empty())
    attributes.set("num_experts", extent(result_));
  else if (summand.op->name == "moe_permute" && given("index") != nullptr && given("index")->size() > 0)
    attributes.set("num_experts", 1 + static_cast<double>(std::ranges::max(given("index")->indices())));
  return attributes;
}

std::vector<Tensor> JudgedCall::golden(const CallVariant& variant, const Arithmetic& how) const {
  const SummationScope scope(how.sums);
  const Shape expected = permuted(result_, variant.permutation).shape();
  std::vector<Tensor> parts;
  for (const Summand& summand : summands_) {
    const auto outputs = compute_golden(*summand.op, inputs_of(summand, variant, how),
                                        attributes_of(summand, variant), Level::fp64, summand.output);
    parts.push_back(output_named(outputs, summand.output));
    if (parts.back().shape() != expected) throw Error("{}: makes another shape", summand.op->name);
  }
  return parts;
}

std::vector<double> JudgedCall::golden_values(const CallVariant& variant, const Arithmetic& how) const {
  return sum_of(golden(variant, how));
}

std::vector<Arithmetic> JudgedCall::admissible_arithmetics(const CallVariant& variant) const {
  if (variant.fp8) {
    const bool has_ranks = std::ranges::any_of(summands_, [](const Summand& c) { return !c.cuts.empty(); });
    if (!has_ranks || summands_.front().output != "grad_w") return {};
    return {{.tokens = TokenBlocks::cut}};
  }
  constexpr std::string_view products[] = {"linear", "matmul", "grouped_matmul", "attention"};
  if (std::ranges::find(products, op().name) == std::end(products)) return {};
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

std::optional<ScaleError> JudgedCall::scale(const CallVariant& variant, const Compared& c) const {
  const Tensor& actual = c.actual;
  const std::vector<double> values = actual.values(), golden = c.golden.values();
  ScaleTest test;
  test.actual = values;
  test.golden = golden;
  test.allowed = c.allowed;
  test.columns = actual.shape().empty() ? 1 : actual.shape().back();
  test.terms = 0;
  for (const Summand& summand : summands_)
    test.terms += accumulation_count(*summand.op, summand.output, shapes_of(summand.inputs),
                                     complete_attributes(*summand.op, attributes_of(summand, variant)));
  test.unit_roundoff = unit_roundoff(arithmetic());
  test.stored_roundoff = unit_roundoff(result_.dtype());
  test.may_truncate = coarsest_roundoff() > unit_roundoff(DType::float32);
  // The turns of a position are a table that heads and sequences share.
  std::vector<std::int64_t> units;
  if (op().name == "rope" && actual.shape().size() >= 3 && test.columns > 0) {
    const auto rank = static_cast<std::int64_t>(actual.shape().size());
    const Attributes attributes = complete_attributes(op(), variant.attributes);
    const std::int64_t given = attributes.integer("sequence_dim");
    const auto along = static_cast<std::size_t>(given < 0 ? given + rank : given);
    const std::int64_t stride = dense_strides(actual.shape())[along], length = actual.shape()[along];
    for (std::int64_t i = 0; i < actual.size(); ++i)
      units.push_back(i / stride % length * test.columns + i % test.columns);
  }
  test.units = units;
  return scale_error(test);
}

// The first index that is not the golden one, -1 if there is none. A router may choose either of two experts
// whose scores are as near to each other as roundings can move them.
std::int64_t JudgedCall::first_wrong_index(const CallVariant& variant, const std::vector<double>& actual,
                                           const std::vector<double>& golden) const {
  std::vector<double> gap, within;
  const Summand& summand = summands_.front();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == golden[i]) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (summand.op->name != "router_topk" || summand.output != "index") return at;
    if (gap.empty()) {
      const Attributes attributes = attributes_of(summand, variant);
      const ErrorModel device{unit_roundoff(DType::float32), min_subnormal(DType::float32)};
      constexpr const char* name = "selection_gap";
      gap = output_named(compute_golden(*summand.op, summand.inputs, attributes, Level::fp64), name).values();
      within = output_named(compute_bound(*summand.op, summand.inputs, attributes, device), name).values();
    }
    const std::size_t row = i / static_cast<std::size_t>(result_.shape().back());
    if (!(std::abs(gap[row]) <= within[row])) return at;
  }
  return -1;
}

std::optional<JudgedCall::Compared> JudgedCall::compare(const CallVariant& variant,
                                                        const Arithmetic& how) const {
  Compared c;
  c.actual = permuted(result_, variant.permutation);
  try {
    const std::vector<Tensor> parts = golden(variant, how);
    const std::vector<double> values = sum_of(parts);
    c.golden = Tensor(c.actual.shape(), std::span<const double>(values));
    if (!is_float(c.actual.dtype())) {
      c.worst_at = first_wrong_index(variant, c.actual.values(), values);
      c.ratio = c.worst_at < 0 ? 0 : infinity;
      return c;
    }
    c.allowed = allowed(variant, parts, values);
    const Metrics m = measure(c.actual, c.golden, {0, 0, c.allowed});
    c.ratio = m.special_mismatch > 0 ? infinity : m.worst_ratio;
    c.worst_at = worst_element(m);
    c.scale = scale(variant, c);
    return c;
  } catch (const Error&) {  // not from these inputs
    return std::nullopt;
  }
}

std::optional<double> JudgedCall::ratio(const CallVariant& variant, const Arithmetic& how) const {
  const std::optional<Compared> compared = compare(variant, how);
  return compared ? std::optional(compared->ratio) : std::nullopt;
}

bool JudgedCall::may_fit(const CallVariant& variant, const Arithmetic& how) const {
  constexpr double far = 0.1;  // relative L2
  try {
    const Tensor actual = permuted(result_, variant.permutation);
    const std::vector<double> values = golden_values(variant, how);
    if (!is_float(actual.dtype())) return true;
    return measure(actual, Tensor(actual.shape(), std::span<const double>(values)), {}).relative_l2 <= far;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace assay
