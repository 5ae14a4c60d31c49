// A sum whose terms cancel is outside of any rule that knows its size alone.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "assay/golden/sketch.h"
#include "isolated.h"

namespace assay {
namespace {

constexpr std::int64_t tokens = 256, channels = 16;

// What attention hands back to its keys: a key's bias moves all scores of a row alike, which softmax does not
// see, so that the bias's gradient is 0 but for roundings. Nobody recorded what made it.
// @param sided  every difference up
Report keys_of_unknown_attention(double difference, bool sided) {
  return isolated([&](MemoryDump& d, bool is_actual) {
    const auto id = [](Phase phase, const char* slot, const char* arg) {
      return Identity{0, phase == Phase::optimizer ? -1 : 0, phase, "attn.k_proj", slot, arg, 0};
    };
    const Tensor x = normal_tensor(DType::float32, {tokens, channels}, 1),
                 w = normal_tensor(DType::float32, {channels, channels}, 2),
                 b = normal_tensor(DType::float32, {channels}, 3);
    Values g = normal_tensor(DType::float32, {tokens, channels}, 4).values();
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t t = 0; t < tokens; ++t) sum += g[static_cast<std::size_t>(t * channels + c)];
      for (std::int64_t t = 0; t < tokens; ++t) {
        double& v = g[static_cast<std::size_t>(t * channels + c)];
        v -= sum / tokens;
        const bool is_up = sided || mixed(static_cast<std::uint64_t>(t * channels + c)) % 2 == 0;
        if (is_actual) v += (is_up ? 1 : -1) * difference * std::abs(v);
      }
    }
    const Tensor grad = Tensor::from_values(DType::float32, {tokens, channels}, g);
    const std::vector<NamedTensor> given = {{"x", x}, {"w", w}, {"b", b}, {"grad_y", grad}};
    d.add(id(Phase::forward, "input", "x"), x);
    d.add(id(Phase::forward, "param", "weight"), w);
    d.add(id(Phase::forward, "param", "bias"), b);
    d.add(id(Phase::forward, "output", "y"), output("linear", {given[0], given[1], given[2]}, {}, "y"));
    d.add(id(Phase::backward, "grad_output", "y"), grad);
    Identity of_bias = id(Phase::backward, "grad", "bias");
    of_bias.micro_batch = -1;
    d.add(of_bias, output("linear", given, {}, "grad_b"));
  });
}

TEST(CancelledTerms, OfRoundingsAreExempt) {
  const Report report = keys_of_unknown_attention(1e-6, false);
  EXPECT_EQ(finding(report, "attn.k_proj", "grad_output").verdict, Verdict::passed);
  const Finding& bias = finding(report, "attn.k_proj", "grad");
  EXPECT_EQ(bias.verdict, Verdict::exempt) << (bias.origin ? bias.origin->reason : "");
  ASSERT_TRUE(bias.exemption);
  EXPECT_NE(bias.exemption->source.find("up and down at random"), std::string::npos)
      << bias.exemption->source;
  EXPECT_EQ(report.exit_status(), 0);
}

// As a mistake in what nobody recorded would have it.
TEST(CancelledTerms, ThatAreAllPushedUpAreNot) {
  const Report report = keys_of_unknown_attention(1e-6, true);
  EXPECT_EQ(finding(report, "attn.k_proj", "grad_output").verdict, Verdict::passed);
  EXPECT_EQ(finding(report, "attn.k_proj", "grad").verdict, Verdict::undecided);
  EXPECT_EQ(report.exit_status(), 1);
}

}  // namespace
}  // namespace assay
