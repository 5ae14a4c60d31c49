// A sum whose terms cancel is outside of any rule that knows its size alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
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

// Attention between modules whose values are nearly alike: which key a query should turn to is a difference
// of them, and what the queries get back is all differences of the values. Nobody recorded what made these.
// @param own  of the result itself, as a kernel that adds up otherwise makes it
// @param factor  of the result, within its bound
Report values_nearly_alike(double difference, bool sided, double own = 0, DType dtype = DType::float32,
                           double factor = 1) {
  return isolated([&](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t keys = 24, width = 32;
    const Shape shape = {1, keys, width};
    const auto up = [](std::int64_t i) { return mixed(static_cast<std::uint64_t>(i)) % 2 == 0 ? 1. : -1.; };
    const auto filled = [&](const std::function<double(std::int64_t, std::int64_t)>& f) {
      Values values;
      for (std::int64_t i = 0; i < keys * width; ++i) values.push_back(f(i / width, i % width));
      return Tensor::from_values(dtype, shape, values);
    };
    const double apart_by = dtype == DType::float32 ? 1e-3 : 0.1;
    const Tensor alike = normal_tensor(DType::float32, {width}, 5),
                 apart = normal_tensor(DType::float32, shape, 6),
                 sizes = normal_tensor(DType::float32, shape, 7);
    const Tensor v = filled([&](std::int64_t t, std::int64_t c) {
      const double value = alike.value(c) + apart_by * apart.value(t * width + c);
      // A mistake's differences may go with what is handed back, and make more of their sum.
      const double sign = sided ? up(t) * up(c + 7000) : up(t * width + c + 100);
      return value + (is_actual ? sign * difference * std::abs(value) : 0);
    });
    const Tensor g = filled(
        [&](std::int64_t t, std::int64_t c) { return up(c + 7000) * std::abs(sizes.value(t * width + c)); });
    std::vector<NamedTensor> inputs = {
        {"q", normal_tensor(dtype, shape, 8)}, {"k", normal_tensor(dtype, shape, 9)}, {"v", v}};
    for (const NamedTensor& x : inputs)
      d.add({0, 0, Phase::forward, "attn." + x.name + "_proj", "output", "y", 0}, x.tensor);
    inputs.push_back({"grad_out", g});
    const auto made = [&](const char* name) {
      const Tensor t = output("rotary_attention", inputs, {{"head_dim", static_cast<double>(width)}}, name);
      return Tensor::from_values(dtype, t.shape(), t.values());
    };
    d.add({0, 0, Phase::forward, "attn.o_proj", "input", "input", 0}, made("out"));
    d.add({0, 0, Phase::backward, "attn.o_proj", "grad_input", "input", 0}, g);
    for (const char* name : {"q", "k", "v"}) {
      const Tensor right = made((std::string("grad_") + name).c_str());
      double largest = 0;
      for (const double x : right.values()) largest = std::max(largest, std::abs(x));
      const Tensor of_kernel = filled([&](std::int64_t t, std::int64_t c) {
        return (is_actual ? factor : 1) * right.value(t * width + c) +
               (is_actual ? own * largest * up(t * width + c + 9000) : 0);
      });
      d.add({0, 0, Phase::backward, std::string("attn.") + name + "_proj", "grad_output", "y", 0},
            std::string(name) == "q" ? of_kernel : right);
    }
  });
}

TEST(CancelledTerms, OfACallInNoModuleAreExempt) {
  const Report report = values_nearly_alike(1e-6, false);
  EXPECT_EQ(finding(report, "attn.v_proj", "output").verdict, Verdict::passed);
  const Finding& back = finding(report, "attn.q_proj", "grad_output");
  EXPECT_EQ(back.verdict, Verdict::exempt) << (back.origin ? back.origin->reason : "");
  ASSERT_TRUE(back.exemption);
  EXPECT_NE(back.exemption->source.find("up and down at random"), std::string::npos)
      << back.exemption->source;
}

TEST(CancelledTerms, OfACallInNoModuleThatArePushedOneWayAreNot) {
  const Report report = values_nearly_alike(1e-6, true);
  EXPECT_EQ(finding(report, "attn.v_proj", "output").verdict, Verdict::passed);
  EXPECT_EQ(finding(report, "attn.q_proj", "grad_output").verdict, Verdict::undecided);
  EXPECT_EQ(report.exit_status(), 1);
}

// What its inputs explain is how far they move the right result, which is hardly at all.
TEST(CancelledTerms, AreExemptWhereTheCallItselfRounded) {
  const Report report = values_nearly_alike(6e-8, false, 1e-4);
  const Finding& back = finding(report, "attn.q_proj", "grad_output");
  EXPECT_EQ(back.verdict, Verdict::exempt) << (back.origin ? back.origin->reason : "");
}

// Of roundings all elements share nothing.
TEST(CancelledTerms, AreNotExemptWhereTheCallItselfIsOffByAFactor) {
  for (const double factor : {1., 1.02}) {
    const Report report = values_nearly_alike(0x1p-8, false, 0, DType::bfloat16, factor);
    EXPECT_EQ(finding(report, "attn.v_proj", "output").verdict, Verdict::passed);
    EXPECT_EQ(finding(report, "attn.q_proj", "grad_output").verdict,
              factor == 1 ? Verdict::exempt : Verdict::undecided);
  }
}

}  // namespace
}  // namespace assay
