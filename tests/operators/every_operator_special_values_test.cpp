#include "every_operator.h"

namespace assay::every_operator_special_values_test {
namespace {

// Every output element that feels a small change of an input must be NaN when the input is; where the input
// also decides what goes where (sort, top-k, max), some element of that output must be.
TEST_P(EveryOperator, NaNReachesEveryOutputThatDependsOnIt) {
  for (const CallShape& call : calls()) {
    auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 2);
    const auto before = outputs<double>(op, inputs, call.attributes);
    const bool chooses = std::ranges::any_of(
        op.args, [](const Arg& arg) { return arg.role == Role::output_index || arg.exact == Exact::value; });
    for (NamedTensor& input : inputs) {
      if (!is_float(input.tensor.dtype())) continue;
      const Tensor original = input.tensor;
      for (const std::int64_t i : sample(original.size())) {
        input.tensor = with_element(original, i, original.value(i) + 0x1p-20);
        const auto moved = outputs<double>(op, inputs, call.attributes);
        input.tensor = with_element(original, i, std::nan(""));
        const auto poisoned = outputs<double>(op, inputs, call.attributes);
        input.tensor = original;
        for (const auto& [name, values] : before) {
          const auto& after = poisoned.at(name);
          for (std::size_t k = 0; k < values.size(); ++k) {
            if (moved.at(name)[k] == values[k]) continue;
            EXPECT_TRUE(std::isnan(after[k]) ||
                        (chooses && std::ranges::any_of(after, [](double v) { return std::isnan(v); })))
                << name << " at " << k << " depends on " << input.name << " at " << i;
          }
        }
      }
    }
  }
}

// Infinities: the same class of result (NaN, infinite with its sign, finite) in float and in double.
TEST_P(EveryOperator, InfinitiesGiveTheSameKindOfResultAtEveryLevel) {
  const auto kind = [](double v) {
    return std::isnan(v) ? "NaN" : v == infinity ? "inf" : v == -infinity ? "-inf" : "finite";
  };
  for (const CallShape& call : calls()) {
    auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 4);
    for (NamedTensor& input : inputs) {
      if (!is_float(input.tensor.dtype())) continue;
      const Tensor original = input.tensor;
      for (const std::int64_t i : sample(original.size())) {
        for (const double value : {infinity, -infinity}) {
          input.tensor = with_element(original, i, value);
          const auto doubles = outputs<double>(op, inputs, call.attributes);
          const auto floats = outputs<float>(op, inputs, call.attributes);
          for (const auto& [name, values] : doubles) {
            for (std::size_t k = 0; k < values.size(); ++k) {
              EXPECT_STREQ(kind(values[k]), kind(floats.at(name)[k]))
                  << name << " at " << k << ", " << input.name << " at " << i << " is " << value;
            }
          }
        }
      }
      input.tensor = original;
    }
  }
}

TEST_P(EveryOperator, SpecialValuesNeverCrash) {
  for (const CallShape& call : calls()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto inputs = generate_inputs(op, call, Fill::special, DType::float32, seed);
      compute_golden(op, inputs, call.attributes, Level::report);
      compute_golden(op, inputs, call.attributes, Level::fp64);
      compute_bound(op, inputs, call.attributes, float32_model);
      outputs<Truth>(op, inputs, call.attributes);
    }
  }
}

}  // namespace
}  // namespace assay::every_operator_special_values_test
