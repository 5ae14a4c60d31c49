// Computes a golden rms_norm, then judges a kernel's output (here the float32 one, and a wrong one) by it.
#include <fmt/core.h>

#include <exception>
#include <vector>

#include "assay/compare/pairs/judge.h"
#include "assay/compare/result/version.h"
#include "assay/golden/xtensor.h"
#include "assay/operators/engine/golden.h"

int main() try {
  const assay::Operator& rms_norm = assay::find_operator("rms_norm");
  const std::vector<assay::NamedTensor> inputs = {
      {"x", xt::xarray<float>{{1, -1, 7, 7}}},
      {"weight", xt::xarray<float>{1, 2, 1, .5}},
  };
  assay::Attributes attributes;
  attributes.set("eps", 0.);
  attributes = assay::complete_attributes(rms_norm, attributes);
  const auto golden = assay::compute_golden(rms_norm, inputs, attributes, assay::Level::fp64);
  const auto report = assay::compute_golden(rms_norm, inputs, attributes, assay::Level::report);

  fmt::print("assay {}, {}: {}\n", assay::version, rms_norm.name, rms_norm.math);
  for (std::int64_t i = 0; i < golden[0].tensor.size(); ++i) fmt::print(" {:g}", golden[0].tensor.value(i));
  fmt::print("\n");

  const assay::Policy policy = assay::load_policy("telechat3");
  assay::Expectation expected;
  expected.policy = &policy;
  expected.count = assay::accumulation_count(
      rms_norm, "y", std::vector<assay::InputShape>{{"x", {1, 4}}, {"weight", {4}}}, attributes);
  assay::Finding good, bad;
  assay::judge(good, report[0].tensor, golden[0].tensor, expected);
  assay::judge(bad, inputs[0].tensor, golden[0].tensor, expected);
  fmt::print("{} by {}\n{}: {}\n", assay::name(good.verdict), good.rule, assay::name(bad.verdict),
             bad.reason);
  return good.verdict == assay::Verdict::passed && bad.verdict == assay::Verdict::failed ? 0 : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 2;
}
