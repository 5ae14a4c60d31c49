// NaN and infinities that one side has.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isolated.h"

namespace assay::nonfinite_test {
namespace {

constexpr auto f = Phase::forward;

// Three values of each micro-batch; those of the actual side are `bad` from the second on.
auto from_the_second(double bad) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      for (const std::string module : {"first", "second", "third"}) {
        const Tensor t =
            normal_tensor(DType::float32, {4, 8}, 10 * static_cast<std::uint64_t>(mb) + *module.data());
        Values values = t.values();
        if (is_actual && module != "first") values.assign(values.size(), bad);
        d.add({0, mb, f, module, "output", "y", 0}, Tensor::from_values(DType::float32, {4, 8}, values));
      }
    }
  };
}

// All of another micro-batch are as much NaN, and no more its values.
TEST(Nonfinite, AreNoOtherTensorsValues) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    const Report report = isolated(from_the_second(bad));
    for (const Finding& x : report.findings) {
      EXPECT_EQ(x.verdict == Verdict::passed, x.id.module == "first") << x.name;
      for (const Diagnosis& d : x.diagnoses) EXPECT_EQ(d.cause, Cause::nonfinite) << x.name;
    }
    const Finding& begin = finding(report, "second", "output");
    ASSERT_EQ(begin.diagnoses.size(), 1u);
    EXPECT_EQ(begin.diagnoses.front().parameters.tensor, "");
    EXPECT_EQ(begin.diagnoses.front().parameters.elements, 32);
    EXPECT_TRUE(
        sentence(begin.diagnoses.front())
            .starts_with(std::isnan(bad) ? "32 of 32 elements are NaN" : "32 of 32 elements are Inf"));
  }
}

TEST(Nonfinite, FollowFromWhatHasThemAlready) {
  const Report report = isolated([](MemoryDump& d, bool is_actual) {
    const Tensor w = normal_tensor(DType::float32, {8, 8}, 1), x = normal_tensor(DType::float32, {4, 8}, 2);
    Values values = x.values();
    if (is_actual) values[3] = std::nan("");
    const Tensor given = Tensor::from_values(DType::float32, {4, 8}, values);
    // The first row should be NaN; its second half is not.
    Values made = output("linear", {{"x", x}, {"w", w}}, {}, "y").values();
    for (std::size_t i = 0; i < 4 && is_actual; ++i) made[i] = std::nan("");
    d.add({0, -1, f, "up", "param", "weight", 0}, w);
    d.add({0, 0, f, "up", "input", "input", 0}, given).op = "Linear";
    d.add({0, 0, f, "up", "output", "y", 0}, Tensor::from_values(DType::float32, {4, 8}, made)).op = "Linear";
  });
  EXPECT_EQ(finding(report, "up", "output").verdict, Verdict::inherited);
}

}  // namespace
}  // namespace assay::nonfinite_test
