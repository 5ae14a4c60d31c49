// What programs make between the modules of an MoE block: choices by a biased score, a shared expert's gate.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::hidden_experts_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t tokens = 16, width = 12;

// The bias decides the choice and is in no weight: without it none of these weights can be made.
TEST(HiddenExperts, ARouterMayHaveABias) {
  const auto record = [](bool one_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor bias = normal_tensor(DType::float32, {8}, 3);
      d.add({0, -1, f, "moe", "param", "expert_bias", 0}, bias);
      for (const std::int64_t mb : {0, 1}) {
        const Tensor logits = normal_tensor(DType::float32, {tokens, 8}, static_cast<std::uint64_t>(10 + mb));
        const std::vector<NamedTensor> inputs = {{"logits", logits}, {"expert_bias", bias}};
        const auto made = compute_golden(find_operator("router_topk"), inputs,
                                         {{"top_k", 2}, {"score", "sigmoid"}}, Level::fp64);
        const Tensor weights = noisy(single(output_named(made, "weights")), is_actual ? 7 : 8);
        d.add({0, mb, f, "moe.gate", "output", "y", 0}, logits);
        d.add({0, mb, f, "moe.experts", "input", "index", 0}, output_named(made, "index"));
        d.add({0, mb, f, "moe.experts", "input", "weights", 0},
              one_wrong && is_actual ? with_one_wrong(weights) : weights);
      }
    };
  };
  const Report right = isolated(record(false));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& x : right.findings) {
    if (x.id.module == "moe.experts") {
      EXPECT_EQ(x.unjudged, "") << x.name;
    }
  }
  EXPECT_EQ(created(isolated(record(true))), std::vector<std::string>(2, "moe.experts input weights"));
}

// Of many layers only the last one's result goes to a norm behind them all; the residual stream has its
// tokens by sequences, experts have them in one row.
TEST(HiddenExperts, ASharedOneIsGatedBehindTheLastLayer) {
  const auto record = [](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(100 * mb);
      const auto drawn = [&](Shape shape, int of) {
        return normal_tensor(DType::float32, std::move(shape), seed + static_cast<std::uint64_t>(of));
      };
      Tensor stream = drawn({1, tokens, width}, 1);
      d.add({0, mb, f, "embed", "output", "y", 0}, stream);
      constexpr int layers = 5;
      for (int l = 0; l < layers; ++l) {
        const std::string layer = fmt::format("layers.{}", l);
        d.add({0, mb, f, layer + ".norm", "input", "x", 0}, stream);
        std::vector<NamedTensor> inputs = {{"x", drawn({tokens, width}, 10 * l + 2)},
                                           {"gate", drawn({tokens, 1}, 10 * l + 3)},
                                           {"z", drawn({tokens, width}, 10 * l + 4)},
                                           {"r", stream}};
        for (const auto& [module, made] :
             {std::pair{"experts", 0}, std::pair{"shared_expert_gate", 1}, std::pair{"down", 2}})
          d.add({0, mb, f, fmt::format("{}.mlp.{}", layer, module), "output", "y", 0},
                inputs[static_cast<std::size_t>(made)].tensor)
              .op = "linear";
        if (l == layers - 1) {
          inputs.push_back({"grad_y", drawn({1, tokens, width}, 99)});
          d.add({0, mb, b, "norm", "grad_input", "x", 0}, inputs.back().tensor);
        }
        const auto made = compute_golden(find_operator("gated_add"), inputs, {}, Level::fp64);
        stream = single(output_named(made, "y"));
        if (l == layers - 1)
          d.add({0, mb, b, layer + ".mlp.shared_expert_gate", "grad_output", "y", 0},
                noisy(single(output_named(made, "grad_gate")), is_actual ? 5 : 6));
      }
      d.add({0, mb, f, "norm", "input", "x", 0}, stream);
    }
  };
  const Report report = isolated(record);
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(finding(report, "norm", "input").unjudged, "");
  EXPECT_EQ(finding(report, "layers.4.mlp.shared_expert_gate", "grad_output").unjudged, "");
}

}  // namespace
}  // namespace assay::hidden_experts_test
