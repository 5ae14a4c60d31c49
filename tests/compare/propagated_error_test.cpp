// Results of unknown operators: whether their error is that of their inputs.
#include "assay/compare/origin/propagated_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/diff.h"
#include "memory_dump.h"
#include "recorded_pair.h"

namespace assay::propagated_error_test {
namespace {

using Kind = Origin::Kind;
using Values = std::vector<double>;

// float32: 1e-5 + 1.3e-6 |g|, bfloat16: 1e-5 + 1.6e-2 |g|
Finding judged(const MemoryDump& actual, const MemoryDump& reference, const char* slot) {
  DiffOptions options;
  options.policies.push_back(load_policy("torch"));
  for (const Finding& f : diff(actual, reference, options).findings) {
    if (f.id.slot == slot) return f;
  }
  throw Error("no finding {}", slot);
}

struct Block : MemoryDump {
  Block(const Tensor& input, const Tensor& output) : MemoryDump("d") {
    add({0, 0, Phase::forward, "block", "input", "x", 0}, input);
    add({0, 0, Phase::forward, "block", "output", "y", 0}, output);
  }
};

Origin origin_of_output(const Block& actual, const Block& reference) {
  return judged(actual, reference, "output").origin.value();
}

TEST(PropagatedError, WhatIsOffAsItsInputsAreWasNotMadeThere) {
  const Block reference(float32({1}), float32({1}));
  const auto origin = [&](double y) {
    return origin_of_output(Block(float32({1.00001}), float32({y})), reference);
  };
  EXPECT_EQ(origin(1.000013).kind, Kind::unknown);
  EXPECT_LE(origin(1.000013).local_ratio, 1);
  EXPECT_THAT(origin(1.000013).reason, testing::HasSubstr("1.3e-05, where its inputs are off by 1e-05"));
  EXPECT_EQ(origin(1.00003).kind, Kind::created);
}

// As a whole 3e-6, less than the inputs; but one element alone, or a value that is no number, was made here.
TEST(PropagatedError, WhatIsWrongInOneElementWasMadeThere) {
  const auto kind = [](double input, double last) {
    const Tensor ones = float32(Values(100, 1));
    Values y(100, 1);
    y.back() = last;
    return origin_of_output(Block(float32(Values(100, input)), float32(y)), Block(ones, ones)).kind;
  };
  EXPECT_EQ(kind(1.00001, 1.000015), Kind::unknown) << "as far as an input is";
  EXPECT_EQ(kind(1.00001, 1.00003), Kind::created);
  EXPECT_EQ(kind(1.00001, std::nan("")), Kind::created);
  EXPECT_EQ(kind(1, std::nan("")), Kind::created);
}

// As large as all others of the input together.
TEST(PropagatedError, AnActivationThatIsHugeHidesNoRow) {
  const Shape shape = {20000, 64};
  const auto block = [&](double x_off, double y_off, std::size_t lost_rows) {
    Values x = normal_tensor(DType::float32, shape, 5).values(),
           y = normal_tensor(DType::float32, shape, 6).values();
    x[7] = 1000;
    for (double& v : x) v *= 1 + x_off;
    for (double& v : y) v *= 1 + y_off;
    y[100] *= 1 + y_off;  // outside of the tolerance, alone
    std::fill_n(y.begin(), 64 * lost_rows, 0);
    return Block(Tensor::from_values(DType::bfloat16, shape, x),
                 Tensor::from_values(DType::float32, shape, y));
  };
  EXPECT_EQ(origin_of_output(block(0.008, 0.012, 0), block(0, 0, 0)).kind, Kind::unknown);
  EXPECT_EQ(origin_of_output(block(0.008, 0.012, 1), block(0, 0, 0)).kind, Kind::created);
}

// Next to zero a parameter may be off by half of itself.
TEST(PropagatedError, AParameterThatIsOffExplainsNoResult) {
  struct Biased : Block {
    Biased(double bias, double y) : Block(float32({1}), float32({y})) {
      add({0, -1, Phase::forward, "block", "param", "bias", 0}, float32({bias}));
    }
  };
  const Biased actual(2.2e-5 + 0.99e-5, 1.2), reference(2.2e-5, 1);
  EXPECT_EQ(judged(actual, reference, "param").verdict, Verdict::passed);
  EXPECT_EQ(origin_of_output(actual, reference).kind, Kind::created);
}

TEST(PropagatedError, AGradientThatIsOffExplainsNoStep) {
  struct Step : MemoryDump {
    Step(double grad, double param) : MemoryDump("d") {
      add({0, -1, Phase::backward, "m", "grad", "weight", 0}, tensor(DType::bfloat16, {grad}));
      add({0, -1, Phase::optimizer, "m", "param", "weight", 0}, float32({param}));
    }
  };
  const Step actual(1.01171875, 1), reference(1, 0.98);
  EXPECT_EQ(judged(actual, reference, "grad").verdict, Verdict::passed);
  EXPECT_EQ(judged(actual, reference, "param").origin.value().kind, Kind::created) << "it did not move";
}

}  // namespace
}  // namespace assay::propagated_error_test
