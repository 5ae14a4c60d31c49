// Activations that a program makes between its modules.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::functional_activation_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// fc2(activation(fc1(x))): what fc1 makes, what fc2 is given, and both gradients.
Report between(const std::string& name, const Attributes& actual = {}, bool one_wrong = false) {
  return isolated([&](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(mb);
      const std::vector<NamedTensor> inputs = {
          {"x", noisy(normal_tensor(DType::float32, {16, 32}, 10 + seed), is_actual ? 1 : 2)},
          {"grad_y", noisy(normal_tensor(DType::float32, {16, 32}, 20 + seed), is_actual ? 3 : 4)}};
      const auto made = [&](const char* output_name) {
        return output(name, inputs, is_actual ? actual : Attributes(), output_name);
      };
      const Tensor of_x = made("grad_x");
      d.add({0, mb, f, "fc1", "output", "y", 0}, inputs[0].tensor);
      d.add({0, mb, f, "fc2", "input", "input", 0}, made("y"));
      d.add({0, mb, b, "fc2", "grad_input", "input", 0}, inputs[1].tensor);
      d.add({0, mb, b, "fc1", "grad_output", "y", 0}, one_wrong && is_actual ? with_one_wrong(of_x) : of_x);
    }
  });
}

class FunctionalActivation : public testing::TestWithParam<std::string> {};

TEST_P(FunctionalActivation, IsJudgedAndAWrongElementIsFound) {
  const Report right = between(GetParam());
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "fc2", "input").unjudged, "");
  EXPECT_EQ(finding(right, "fc1", "grad_output").unjudged, "");
  EXPECT_EQ(created(between(GetParam(), {}, true)), std::vector<std::string>(2, "fc1 grad_output y"));
}

INSTANTIATE_TEST_SUITE_P(Operators, FunctionalActivation,
                         testing::Values("gelu", "silu", "relu", "relu_squared", "sigmoid", "tanh"),
                         [](const auto& of) { return of.param; });

TEST(FunctionalActivations, AnotherFormIsNamed) {
  const Report report = between("gelu", {{"approximate", "tanh"}});
  const Finding& first = finding(report, "fc2", "input");
  ASSERT_FALSE(first.diagnoses.empty());
  EXPECT_NE(sentence(first.diagnoses.front()).find("approximate = \"tanh\""), std::string::npos)
      << sentence(first.diagnoses.front());
}

}  // namespace
}  // namespace assay::functional_activation_test
