#include "assay/compare/causes/values/least_squares.h"

#include <gtest/gtest.h>

namespace assay::least_squares_test {
namespace {

// Of two elements and one unknown a fit is exact by accident, and so is what is derived from it.
TEST(Estimates, OfFewElementsAreNotBelievedMoreForBeingDerived) {
  const Estimate by_accident = {0.1, 1e-15, 1}, fitted = {0.01, 1e-9, 60};
  const Estimate kept = pooled({by_accident.scaled(-1, 1), fitted.scaled(-1, 1)});
  EXPECT_NEAR(kept.value, 0.99, 1e-8);
  EXPECT_NEAR(pooled({pooled({by_accident}), kept}).value, 0.99, 1e-8);
  EXPECT_DOUBLE_EQ(fitted.scaled(-2).sigma, 2e-9);
}

}  // namespace
}  // namespace assay::least_squares_test
