#include "rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "assay/compare/matches_golden.h"

namespace {

using assay::MatchesGolden;
using testing::Not;

struct RmsNorm : testing::Test {
  static constexpr int rows = 32, channels = 4096;

  RmsNorm() : x(rows * channels), w(channels), y(x.size()) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(generator);
    for (float& v : w) v = 1 + normal(generator) / 8;
    inputs = {{"x", {{rows, channels}, x}}, {"weight", {{channels}, w}}};
  }
  std::vector<float> x, w, y;
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
