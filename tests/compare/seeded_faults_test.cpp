#include <cmath>

#include "seeded_fault.h"

namespace assay::seeded_faults_test {
namespace {

Fault cleared(const std::string& name, const std::function<bool(std::int64_t)>& region,
              const std::string& text) {
  return {name,
          [=](Values v) {
            for (std::size_t i = 0; i < v.size(); ++i) v[i] = region(static_cast<std::int64_t>(i)) ? 0 : v[i];
            return v;
          },
          text};
}

std::function<double(double)> stored_in(DType d, Rounding rounding = Rounding::nearest_even) {
  return [=](double x) { return round_to(d, x, rounding); };
}

TEST(SeededFaults, Factors) {
  expect_diagnosed({
      times(2, "factor: actual = 2 x reference (2 = tp)"),
      times(0.25, "factor: actual = 0.25 x reference (0.25 = 1/dp)"),
      times(3, "factor: actual = 3 x reference (3 = cp)"),
      times(5, "factor: actual = 5 x reference (5 = micro-batches)"),
      times(0.2, "factor: actual = 0.2 x reference (0.2 = 1/micro-batches)"),
      times(0.75, "factor: actual = 0.75 x reference (0.75 = cp/dp)"),
      times(1 / 6., "factor: actual = 0.1666667 x reference (0.1666667 = 1/(cp x tp))"),
      times(0.4, "factor: actual = 0.4 x reference (0.4 = tp/micro-batches)"),
      times(16, "factor: actual = 16 x reference"),
      times(65536, "factor: actual = 65536 x reference (65536 = 2^16)"),
      times(1.369, "factor: actual = 1.3"),
      times(-1, "sign: actual = -reference"),
      times(-2, "factor: actual = -2 x reference (-2 = -tp)"),
  });
}

TEST(SeededFaults, Zeros) {
  expect_diagnosed({
      cleared(
          "nothing came back", [](auto) { return true; }, "zeros: every element is zero"),
      cleared(
          "one shard", [](auto i) { return i / C / 12 == 2; }, "zeros: 768 of 3072 elements"),
      cleared(
          "no gradient for one expert's columns", [](auto i) { return i % C / 8 == 6; },
          "zeros: 384 of 3072"),
  });
}

TEST(SeededFaults, PrecisionAndRange) {
  const std::vector<DType> only_float32 = {DType::float32};
  const std::string in_name = "precision: float32 in name, but every element is a ";
  expect_diagnosed({
      each("bfloat16", stored_in(DType::bfloat16), in_name + "bfloat16", only_float32),
      each("tfloat32", stored_in(DType::tfloat32), in_name + "float16 or tfloat32", only_float32),
      each("hfloat32", stored_in(DType::hfloat32), in_name + "hfloat32", only_float32),
      each("truncated", stored_in(DType::bfloat16, Rounding::toward_zero),
           in_name + "bfloat16 number: the reference truncated", only_float32),
      each("float8", stored_in(DType::float8_e4m3fn),
           "precision: bfloat16 in name, but every element is a float8_e4m3fn", {DType::bfloat16}),
      {.name = "float16 overflows",
       .apply = each(
                    "", [](double x) { return std::abs(x) > 65504 ? std::copysign(HUGE_VAL, x) : x; }, "")
                    .apply,
       .first = "overflow: ",
       .scale = 0x1p15},
      {.name = "float8 saturates",
       .apply = each(
                    "", [](double x) { return std::clamp(x, -448., 448.); }, "")
                    .apply,
       .first = "saturated: ",
       .scale = 200},
      each(
          "clipped", [](double x) { return std::clamp(x, -2.5, 2.5); }, "saturated: "),
  });
}

// Where nothing is allowed: any tolerance with an absolute part hides subnormals.
TEST(SeededFaults, FlushedSubnormals) {
  for (const std::uint64_t seed : seeds()) {
    const Tensor right = normal_tensor(DType::float32, {R, C}, seed, 0x1p-126);
    Values flushed = right.values();
    for (double& v : flushed) v = std::abs(v) < 0x1p-126 ? 0 : v;
    RecordedPair run;
    run.add(faulty, Tensor::from_values(DType::float32, {R, C}, flushed), right);
    const Report report = run.diff("bitwise");
    EXPECT_THAT(first_of(report.findings.back().diagnoses), testing::StartsWith("flushed: ")) << seed;
  }
}

}  // namespace
}  // namespace assay::seeded_faults_test
