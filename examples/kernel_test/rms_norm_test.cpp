#include "rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>
#include <xtensor/xrandom.hpp>

#include "assay/compare/matches_golden.h"
#include "assay/golden/xtensor.h"

namespace {

using assay::MatchesGolden;
using testing::Not;

struct RmsNorm : testing::Test {
  RmsNorm() {
    xt::random::seed(1);
    x = xt::random::randn<float>({32, 4096});
    w = 1.f + xt::random::randn<float>({4096}) / 8.f;
    y = xt::empty_like(x);
    inputs = {{"x", x}, {"weight", w}};  // where they lie: nothing is copied
  }
  xt::xarray<float> x, w, y;
  std::vector<assay::NamedTensor> inputs;
};

TEST_F(RmsNorm, ForwardIsRight) {
  rms_norm(x, w, 1e-5f, y);
  EXPECT_THAT(y, MatchesGolden("rms_norm", inputs, {{"eps", 1e-5}}));
}

// A gate that cannot fail proves nothing.
TEST_F(RmsNorm, AMissingTermIsSeen) {
  rms_norm_without_tail(x, w, 1e-5f, y);
  EXPECT_THAT(y, Not(MatchesGolden("rms_norm", inputs, {{"eps", 1e-5}})));
}

}  // namespace
