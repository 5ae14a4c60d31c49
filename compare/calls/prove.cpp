#include "assay/compare/calls/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "assay/compare/measure/measure.h"
#include "assay/golden/summation.h"

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

}  // namespace

std::vector<Finding> prove(CaseCheck& check) {
  const Case& c = check.subject();
  std::vector<Finding> findings;
  const std::vector<NamedTensor> sound = summed_as(c, {});
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
  for (const Fault& fault : faults) {
    const std::vector<NamedTensor> faulty = fault.outputs(c);
    for (const CaseOutput& output : c.outputs) {
      const Tensor *good = find_tensor(sound, output.name), *bad = find_tensor(faulty, output.name);
      if (good == nullptr || bad == nullptr || blind.contains(output.name)) continue;
      const Tensor injected = stored_as(output.dtype, *bad);
      Finding f;
      check.judge_output(f, output, {injected, {}, {}});
      f.others.clear();
      f.notes.clear();
      name_finding(f, c, output, fault.name);
      if (same_bits(injected, stored_as(output.dtype, *good))) {
        f.verdict = Verdict::ignored;
        f.reason = "they change no bit here";
      } else if (is_float(injected.dtype()) && f.verdict == Verdict::passed &&
                 measure(injected, stored_as(output.dtype, *good), {}).max_ulp <= 1) {
        f.verdict = Verdict::ignored;
        f.reason = fmt::format("they move nothing by more than one unit in the last place of {}",
                               name(output.dtype));
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
  }
  return findings;
}

}  // namespace assay
