#include <algorithm>
#include <cmath>

#include "assay/dumps/npy_writer.h"
#include "check_case.h"

// The committed cases as a kernel might return them: right values, and each element wrong in turn.
namespace assay::check_every_case_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const fs::path& folder : find_cases(all_cases))
    names.push_back(fs::relative(folder, all_cases).string());
  return names;
}

class EveryCase : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, EveryCase, testing::ValuesIn(case_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST_P(EveryCase, PassesAsTheFrameworkComputedIt) {
  const Report report = check({all_cases / GetParam()}, check_options({"derived", "telechat3", "torch"}));
  EXPECT_EQ(report.exit_status(), 0) << to_string(report.findings.front().id)
                                     << report.findings.front().reason;
  for (const Finding& f : report.findings) {
    EXPECT_FALSE(f.rule.empty());
    EXPECT_EQ(f.others.size(), 2u);
    EXPECT_EQ(f.others[0].verdict, Verdict::passed) << f.name;
    EXPECT_TRUE(f.count) << f.name;
  }
}

// What a kernel in `dtype` might return: golden values, and per element ten times the error that it may have.
struct Kernel {
  std::vector<NamedTensor> golden;
  std::vector<std::vector<double>> values, step;

  Kernel(const Case& c, DType dtype) : golden(compute_golden(*c.op, c.inputs, c.attributes, Level::fp64)) {
    const ErrorModel device{unit_roundoff(dtype), min_subnormal(dtype)};
    const auto bounds = compute_bound(*c.op, c.inputs, c.attributes, device);
    for (std::size_t t = 0; t < golden.size(); ++t) {
      values.push_back(golden[t].tensor.values());
      step.push_back(bounds[t].tensor.values());
      // The golden value's own bound, in float64, comes on top.
      const double twice = 1 + std::min(1.0, unit_roundoff(DType::float64) / unit_roundoff(dtype));
      for (double& s : step.back()) s *= 10 * twice;
      for (double& v : values.back()) v = round_to(dtype, v);
    }
  }

  // One element away from its golden value, by more than ten times the allowed error where rounding asks for
  // it.
  double moved(std::size_t t, std::size_t i, DType dtype) const {
    const double v = values[t][i];
    if (!std::isfinite(v)) return 0;
    const double away = round_to(dtype, v < 0 ? v - step[t][i] : v + step[t][i]);
    if (away != v) return away;
    return dtype == DType::float64
               ? std::nextafter(v, v < 0 ? -INFINITY : INFINITY)
               : static_cast<double>(std::nextafterf(static_cast<float>(v), v < 0 ? -INFINITY : INFINITY));
  }
};

void expect_every_element_to_matter(const fs::path& folder, DType dtype) {
  const Case c = load_case(folder);
  const Kernel kernel(c, dtype);
  const Scratch scratch;
  std::size_t longest = 0;
  for (const auto& values : kernel.values) longest = std::max(longest, values.size());
  CheckOptions o = check_options();
  o.actual = scratch.path();
  o.causes = false;  // thousands of failures
  // Of the thousands of a table of conversions, each a check of its own, every so many and so the last ones.
  constexpr std::size_t most = 1000;
  const std::size_t step = (longest + most - 1) / most;
  for (std::size_t i = step == 0 ? 0 : (longest - 1) % step; i < longest; i += step) {
    // The i-th element of every output at once: each output has a finding of its own.
    std::vector<double> moved;
    for (std::size_t t = 0; t < kernel.golden.size(); ++t) {
      std::vector<double> values = kernel.values[t];
      if (i < values.size()) values[i] = kernel.moved(t, i, dtype);
      moved.push_back(i < values.size() ? values[i] : 0);
      if (i >= values.size() + step) continue;  // all of it golden, since one time ago
      write_npy(scratch.path() / (kernel.golden[t].name + ".npy"),
                Tensor::from_values(dtype, kernel.golden[t].tensor.shape(), values));
    }
    const Report report = check({folder}, o);
    ASSERT_EQ(report.exit_status(), 1) << i;
    for (const Finding& f : report.findings) {
      const auto output = std::ranges::find(kernel.golden, f.id.arg, &NamedTensor::name);
      ASSERT_NE(output, kernel.golden.end()) << f.name;
      const auto t = static_cast<std::size_t>(output - kernel.golden.begin());
      if (!is_float(output->tensor.dtype())) continue;
      if (i >= kernel.values[t].size()) {
        ASSERT_EQ(f.verdict, Verdict::passed) << f.name << ": " << f.reason;
        continue;
      }
      ASSERT_TRUE(f.metrics) << f.name << ": " << f.reason;
      ASSERT_EQ(f.verdict, Verdict::failed) << f.name << " [" << i << "]: " << f.rule;
      ASSERT_EQ(worst_element(*f.metrics), static_cast<std::int64_t>(i)) << f.name;
      ASSERT_EQ(f.actual_value, moved[t]) << f.name << " [" << i << "]";
      const double golden = kernel.golden[t].tensor.values()[i];
      ASSERT_TRUE(f.reference_value == golden || f.reference_value == round_to(dtype, golden) ||
                  std::isnan(golden))
          << f.name << " [" << i << "]";
      ASSERT_FALSE(f.rule.empty());
      ASSERT_FALSE(f.reason.empty());
      ASSERT_GT(f.ratio, 1);
    }
  }
}

TEST_P(EveryCase, FailsForAnyElementInFloat64) {
  expect_every_element_to_matter(all_cases / GetParam(), DType::float64);
}
TEST_P(EveryCase, FailsForAnyElementInFloat32) {
  expect_every_element_to_matter(all_cases / GetParam(), DType::float32);
}

TEST_P(EveryCase, PassesWithAllElementsAsFarOffAsTheyMayBe) {
  const Case c = load_case(all_cases / GetParam());
  const Kernel kernel(c, DType::float32);
  const Scratch scratch;
  for (std::size_t t = 0; t < kernel.golden.size(); ++t) {
    if (!is_float(kernel.golden[t].tensor.dtype())) {
      write_npy(scratch.path() / (kernel.golden[t].name + ".npy"), kernel.golden[t].tensor);
      continue;
    }
    std::vector<double> values = kernel.golden[t].tensor.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double allowed = std::isfinite(kernel.step[t][i]) ? 0.1 * kernel.step[t][i] : 0;
      const double sign = (i % 2 == 0) == (values[i] > 0) ? 1 : -1;
      const double off = round_to(DType::float32, values[i] + sign * 0.45 * allowed);
      // Where a unit in the last place is as much as is allowed, nothing but the nearest float32 will do.
      const bool nearest = allowed == 0 || std::abs(off - values[i]) > 0.9 * allowed;
      values[i] = nearest ? round_to(DType::float32, values[i]) : off;
    }
    write_npy(scratch.path() / (kernel.golden[t].name + ".npy"),
              Tensor::from_values(DType::float32, kernel.golden[t].tensor.shape(), values));
  }
  CheckOptions o = check_options();
  o.actual = scratch.path();
  o.causes = false;  // thousands of failures
  for (const Finding& f : check({all_cases / GetParam()}, o).findings) {
    EXPECT_EQ(f.verdict, Verdict::passed) << f.name << ": " << f.reason;
  }
}

}  // namespace
}  // namespace assay::check_every_case_test
