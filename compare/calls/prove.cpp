#include "assay/compare/calls/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "assay/compare/measure/measure.h"
#include "assay/golden/summation.h"
#include "assay/operators/engine/ties.h"

namespace assay {
namespace {

// A result as a kernel would hand it over: in the dtype that the case declares.
Tensor stored_as(DType dtype, const Tensor& t) {
  if (!is_float(t.dtype())) return t;
  return Tensor::from_values(dtype, t.shape(), t.values());
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

// One element holds its neighbour's value: the pair that is furthest apart.
Tensor one_element_wrong(const Tensor& t) {
  std::vector<double> values = t.values();
  std::size_t at = 0;
  double furthest = 0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double distance = std::abs(values[i] - values[i + 1]);
    if (!(distance > furthest) || std::isinf(distance)) continue;
    furthest = distance;
    at = i;
  }
  if (values.empty()) return t;
  values[at] = furthest > 0 ? values[at + 1] : values[at] + std::max(1.0, std::abs(values[at]));
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

// The row, along the last dimension, of the largest norm is zero: it was never written.
Tensor one_row_zero(const Tensor& t) {
  std::vector<double> values = t.values();
  if (values.empty()) return t;
  const auto width = static_cast<std::size_t>(t.shape().empty() ? 1 : t.shape().back());
  std::size_t at = 0;
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); i += width) {
    double norm = 0;
    for (std::size_t k = i; k < i + width; ++k) norm += std::isfinite(values[k]) ? std::abs(values[k]) : 0;
    if (norm <= largest) continue;
    largest = norm;
    at = i;
  }
  std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(at), width, 0.0);
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

// As NVIDIA's matrix units take them: cut to 10 fraction bits.
std::vector<NamedTensor> in_tf32(std::span<const NamedTensor> inputs) {
  std::vector<NamedTensor> cut;
  for (const NamedTensor& input : inputs) {
    cut.push_back(input);
    if (!is_float(input.tensor.dtype())) continue;
    std::vector<double> values = input.tensor.values();
    for (double& v : values) v = round_to(DType::tfloat32, v, Rounding::toward_zero);
    cut.back().tensor = Tensor::from_values(DType::float64, input.tensor.shape(), values);
  }
  return cut;
}

std::vector<NamedTensor> summed_as(const Case& c, const Summation& how) {
  const SummationScope scope(how);
  return compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
}

std::vector<NamedTensor> each(std::vector<NamedTensor> tensors, Tensor (*damage)(const Tensor&)) {
  for (NamedTensor& t : tensors) t.tensor = damage(t.tensor);
  return tensors;
}

struct Fault {
  std::string_view name;
  std::vector<NamedTensor> (*outputs)(const Case&);
};
constexpr Fault faults[] = {
    {"one term of each sum skipped", [](const Case& c) { return summed_as(c, {.skip_one = true}); }},
    {"the last tile of each sum dropped", [](const Case& c) { return summed_as(c, {.drop_tile = true}); }},
    {"a bfloat16 accumulator", [](const Case& c) { return summed_as(c, {.accumulator = DType::bfloat16}); }},
    {"tf32 inputs",
     [](const Case& c) { return compute_golden(*c.op, in_tf32(c.inputs), c.attributes, Level::fp64); }},
    {"one element wrong", [](const Case& c) { return each(summed_as(c, {}), one_element_wrong); }},
    {"one row zero", [](const Case& c) { return each(summed_as(c, {}), one_row_zero); }},
};

void name_finding(Finding& f, const Case& c, const CaseOutput& output, std::string_view what) {
  f.name = fmt::format("{} {}, {}", c.name, output.name, what);
  f.injected = true;
  f.id.module = c.name;
  f.id.slot = "prove";
  f.id.arg = fmt::format("{}, {}", output.name, what);
}

// What a kernel made instead of the golden output, in the dtype of the case.
WrongOutput wrong_output(std::string_view fault, const CaseOutput& output, const Tensor& bad,
                         const Tensor& good) {
  WrongOutput wrong{.fault = fault,
                    .output = output.name,
                    .actual = stored_as(output.dtype, bad),
                    .golden = stored_as(output.dtype, good)};
  if (same_bits(wrong.actual, wrong.golden)) {
    wrong.excuse = "they change no bit here";
  } else if (is_float(wrong.actual.dtype())) {
    const Metrics m = measure(wrong.actual, wrong.golden, {});
    if (m.special_mismatch == 0 && m.max_ulp <= 1)
      wrong.excuse =
          fmt::format("they move nothing by more than one unit in the last place of {}", name(output.dtype));
  }
  return wrong;
}

// The float inputs in reverse: legal values, of another call.
std::vector<NamedTensor> reversed(std::span<const NamedTensor> inputs) {
  std::vector<NamedTensor> others(inputs.begin(), inputs.end());
  for (NamedTensor& t : others) {
    if (!is_float(t.tensor.dtype())) continue;
    std::vector<double> values = t.tensor.values();
    std::ranges::reverse(values);
    t.tensor = Tensor::from_values(t.tensor.dtype(), t.tensor.shape(), values);
  }
  return others;
}

Tensor constant_like(const Tensor& t, double value) {
  return Tensor::from_values(DType::float64, t.shape(),
                             std::vector<double>(static_cast<std::size_t>(t.size()), value));
}

double mean_of(const Tensor& t) {
  const std::vector<double> values = t.values();
  double sum = 0, count = 0;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    sum += v;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

}  // namespace

std::vector<WrongOutput> faulty_outputs(const Case& c, std::span<const NamedTensor> sound) {
  std::vector<WrongOutput> all;
  for (const Fault& fault : faults) {
    const std::vector<NamedTensor> faulty = fault.outputs(c);
    for (const CaseOutput& output : c.outputs) {
      const Tensor *good = find_tensor(sound, output.name), *bad = find_tensor(faulty, output.name);
      if (good == nullptr || bad == nullptr) continue;
      WrongOutput& wrong = all.emplace_back(wrong_output(fault.name, output, *bad, *good));
      if (wrong.excuse.empty() && is_legal_tie(*c.op, output.name, wrong.actual, c.inputs, c.attributes))
        wrong.excuse = "they put equal elements in another order, which is as right";
    }
  }
  return all;
}

std::vector<WrongOutput> trivial_outputs(const Case& c, std::span<const NamedTensor> sound) {
  const std::vector<NamedTensor> of_others =
      compute_golden(*c.op, reversed(c.inputs), c.attributes, Level::fp64);
  std::vector<WrongOutput> all;
  for (const CaseOutput& output : c.outputs) {
    const Tensor *good = find_tensor(sound, output.name), *other = find_tensor(of_others, output.name);
    if (good == nullptr || !is_float(good->dtype())) continue;
    const auto add = [&](std::string_view what, const Tensor& bad) {
      all.push_back(wrong_output(what, output, bad, *good));
      all.back().is_trivial = true;
    };
    add("all zeros", constant_like(*good, 0));
    add("their mean everywhere", constant_like(*good, mean_of(*good)));
    add("all NaN", constant_like(*good, std::numeric_limits<double>::quiet_NaN()));
    for (const NamedTensor& input : c.inputs) {
      if (!is_float(input.tensor.dtype()) || input.tensor.shape() != good->shape()) continue;
      add("an input as it is", input.tensor);
      break;
    }
    if (other != nullptr && other->shape() == good->shape()) add("the outputs of other inputs", *other);
  }
  return all;
}

std::vector<Finding> prove(CaseCheck& check) {
  const Case& c = check.subject();
  std::vector<Finding> findings;
  std::vector<NamedTensor> sound = summed_as(c, {});
  for (NamedTensor& t : sound) {
    const auto output = std::ranges::find(c.outputs, t.name, &CaseOutput::name);
    if (output == c.outputs.end()) continue;
    if (auto in_order = check.in_stated_order(*output, output->dtype)) t.tensor = std::move(*in_order);
  }
  std::set<std::string> blind;
  for (const CaseOutput& output : c.outputs) {
    const Tensor* good = find_tensor(sound, output.name);
    if (good == nullptr) continue;  // the case's own finding says so
    Finding f;
    check.judge_output(f, output, {stored_as(output.dtype, *good), {}, {}});
    if (f.verdict == Verdict::passed) continue;
    blind.insert(output.name);
    f.others.clear();
    name_finding(f, c, output, "without a fault");
    f.reason = "golden itself does not pass, so nothing is proved: " + f.reason;
    findings.push_back(std::move(f));
  }
  for (const WrongOutput& wrong : faulty_outputs(c, sound)) {
    if (blind.contains(wrong.output)) continue;
    const CaseOutput& output = *std::ranges::find(c.outputs, wrong.output, &CaseOutput::name);
    Finding f;
    check.judge_output(f, output, {wrong.actual, {}, {}});
    f.others.clear();
    f.notes.clear();
    name_finding(f, c, output, wrong.fault);
    if (!wrong.excuse.empty() && (f.verdict == Verdict::passed || same_bits(wrong.actual, wrong.golden))) {
      f.verdict = Verdict::ignored;
      f.reason = wrong.excuse;
    } else if (f.verdict == Verdict::passed) {
      f.verdict = Verdict::failed;
      f.reason = fmt::format("accepted, error/allowed {:.2g}: the gate does not see this fault", f.ratio);
    } else if (f.verdict == Verdict::failed || f.verdict == Verdict::mistrusted) {
      f.verdict = Verdict::passed;
      f.rule = "an injected fault is rejected: " + f.reason;
      f.row = "an injected fault is rejected";
      f.reason.clear();
      f.ratio = 0;
    }
    findings.push_back(std::move(f));
  }
  return findings;
}

}  // namespace assay
