// One tensor under several names, in another order of dimensions, and with a gradient of many addends.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "isolated.h"

namespace assay {
namespace {

Identity forward(const char* module, const char* slot, const char* arg) {
  return {0, 0, Phase::forward, module, slot, arg, 0};
}
Identity backward(const char* module, const char* slot, const char* arg) {
  return {0, 0, Phase::backward, module, slot, arg, 0};
}

// [tokens, heads x channels] as [heads, channels, tokens].
TEST(OneTensor, KeysAreKnownAsScoresAreMadeWithThem) {
  constexpr std::int64_t tokens = 12, heads = 2, channels = 4;
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor k = normal_tensor(DType::float32, {tokens, heads * channels}, 3);
      Values turned(static_cast<std::size_t>(k.size()));
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t c = 0; c < heads * channels; ++c)
          turned[static_cast<std::size_t>(c * tokens + t)] = k.value(t * heads * channels + c);
      }
      const Tensor b = Tensor::from_values(DType::float32, {heads, channels, tokens}, turned);
      d.add(forward("attn.k", "output", "y"), k);
      d.add(forward("attn.scores", "input", "b"), is_wrong && is_actual ? with_one_wrong(b) : b);
    };
  };
  EXPECT_EQ(isolated(record(false)).exit_status(), 0);
  EXPECT_EQ(created(isolated(record(true))), std::vector<std::string>{"attn.scores input b"});
}

// Attention hands out the weights that it multiplies with, and the layer around it does: one tensor, with
// one gradient.
TEST(OneTensor, WhatIsUsedInsideAndHandedOutHasOneGradient) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor p = normal_tensor(DType::float32, {6, 8}, 5), g = normal_tensor(DType::float32, {6, 8}, 6);
      // Within the tolerance, and not the same bits: what is equal is not judged.
      const Tensor own = is_actual ? plus(g, 0x1p-20, g) : g;
      const auto put = [&](const char* module, const char* slot, const char* arg) {
        d.add(backward(module, slot, arg), is_actual && module == wrong ? with_one_wrong(own) : own);
      };
      d.add(forward("layer.attn.softmax", "output", "y"), p);
      d.add(forward("layer.attn.product", "input", "a"), p);
      d.add(forward("layer.attn", "output", "1"), p);
      d.add(forward("layer", "output", "1"), p);
      put("layer.attn.product", "grad_input", "a");
      put("layer.attn.softmax", "grad_output", "y");
      put("layer.attn", "grad_output", "1");
      put("layer", "grad_output", "1");
    };
  };
  const Report right = isolated(record(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 2)
      << "softmax's result and the gradient of the product: nobody made them";
  for (const std::string wrong : {"layer.attn.softmax", "layer.attn", "layer"}) {
    const Report report = isolated(record(wrong));
    ASSERT_FALSE(created(report).empty()) << wrong;
    EXPECT_TRUE(created(report).front().starts_with(wrong + " grad_output")) << created(report).front();
  }
}

// What q, k and v hand back is added to the residual's one by one, each time with a rounding of the sum.
TEST(OneTensor, AddendsOfAModuleReachASumOneByOne) {
  constexpr double u = 0x1p-24;
  const auto record = [](double total) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = normal_tensor(DType::float32, {4, 8}, 7);
      const auto filled = [](double v) { return Tensor::from_values(DType::float32, {4, 8}, Values(32, v)); };
      d.add(forward("x", "output", "y"), x);
      d.add(forward("attn", "input", "x"), x);
      const Tensor y = normal_tensor(DType::float32, {4, 8}, 8);
      d.add(forward("attn", "output", "y"), y);
      d.add(backward("attn", "grad_output", "y"), y);
      for (const char* module : {"attn.q", "attn.k", "attn.v", "residual"}) {
        d.add(forward(module, "input", "x"), x);
        d.add(backward(module, "grad_input", "x"), filled(module[0] == 'r' ? 1 : 0.96 * u));
      }
      // Rounded once, or after each: 1 + 0.96 u is 1.
      d.add(backward("x", "grad_output", "y"), filled(is_actual ? total : 1 + 2 * u));
    };
  };
  EXPECT_EQ(isolated(record(1)).exit_status(), 0);
  EXPECT_EQ(created(isolated(record(1 - 4 * u))), std::vector<std::string>{"x grad_output y"});
}

// BERT's head has the table of words and a bias that is registered one module further out.
TEST(OneTensor, AHeadMayBorrowItsWeightAndItsBias) {
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor w = normal_tensor(DType::float32, {6, 8}, 81), b = normal_tensor(DType::float32, {6}, 82),
                   x = normal_tensor(DType::float32, {16, 8}, 83),
                   y = output("linear", {{"x", x}, {"w", w}, {"b", b}}, {}, "y");
      d.add({0, -1, Phase::forward, "embed", "param", "weight", 0}, w);
      d.add({0, -1, Phase::forward, "predictions", "param", "bias", 0}, b);
      d.add(forward("predictions.decoder", "input", "x"), x).op = "linear";
      d.add(forward("predictions.decoder", "output", "y"),
            is_actual ? is_wrong ? with_one_wrong(y) : plus(y, 0x1p-23, y) : y)
          .op = "linear";
    };
  };
  EXPECT_EQ(created(isolated(record(true))), std::vector<std::string>{"predictions.decoder output y"});
  const Report right = isolated(record(false));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0);
}

}  // namespace
}  // namespace assay
