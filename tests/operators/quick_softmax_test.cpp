#include "assay/operators/engine/quick_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "assay/golden/arithmetic.h"

namespace assay::quick_softmax_test {
namespace {

// Whatever the number of lanes leaves over, each is what Bound makes of it, its error no larger.
TEST(QuickSoftmax, HasTheValuesOfBoundAndNoMoreThanItsErrors) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 3);
  ErrorModel device = float32_device;
  device.quick = true;
  const ErrorScope scope(device);
  for (std::size_t n = 1; n < 36; ++n) {
    std::vector<Bound> scores, expected;
    std::size_t top = 0;
    for (std::size_t i = 0; i < n; ++i) {
      scores.emplace_back(normal(random), 1e-6 * static_cast<double>(i % 3));
      if (scores[top] < scores[i]) top = i;
    }
    const Bound largest(scores[top].value);
    for (const Bound& score : scores) expected.push_back(exp(score - largest));
    const Bound all =
        sum<Bound>(std::ssize(expected), [&](auto i) { return expected[static_cast<std::size_t>(i)]; });
    const ExponentialSums made = take_exponentials(scores, top);
    EXPECT_NEAR(made.all.value, all.value, 1e-14 * all.value);
    EXPECT_NEAR(made.others.value, all.value - 1, 1e-14 * all.value);
    EXPECT_LE(made.all.error, all.error * (1 + 1e-9));
    EXPECT_GE(made.all.error, all.error * 0.99);
    const auto is_no_more = [](const Bound& x, const Bound& than) {
      EXPECT_NEAR(x.value, than.value, 1e-14 * than.value);
      EXPECT_LE(x.error, than.error * (1 + 1e-9));
      EXPECT_GE(x.error, than.error * 0.99);
    };
    for (std::size_t i = 0; i < n; ++i) is_no_more(scores[i], expected[i]);
    divide_by(all, scores);
    for (std::size_t i = 0; i < n; ++i) is_no_more(scores[i], expected[i] / all);
  }
}

TEST(QuickSoftmax, TakesNumbersAlone) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(are_finite(std::vector<Bound>{{1, 0}, {2, 3}}));
  EXPECT_FALSE(are_finite(std::vector<Bound>{{1, 0}, {-infinite, 0}}));
  EXPECT_FALSE(are_finite(std::vector<Bound>{{1, infinite}}));
  EXPECT_FALSE(are_finite(std::vector<Bound>{{NAN, 0}}));
}

}  // namespace
}  // namespace assay::quick_softmax_test
