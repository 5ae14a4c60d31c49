// Attention whose scores hardly differ: the result is the same whichever of two values was the query.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::hidden_orders_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// q and k of a first layer, as small as embeddings are when a training begins.
auto small_scores(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    const Attributes attributes = {{"head_dim", 8}, {"is_causal", false}};
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      std::vector<NamedTensor> inputs;
      for (const auto& [name, scale] : {std::pair("q", 0x1p-14), {"k", 0x1p-14}, {"v", 1.}}) {
        inputs.push_back({name, normal_tensor(DType::float32, {2, 12, 32}, 1 + seed + inputs.size(), scale)});
        d.add({0, mb, f, "attn." + inputs.back().name + "_proj", "output", "y", 0}, inputs.back().tensor);
      }
      inputs.push_back({"grad_out", normal_tensor(DType::float32, {2, 12, 32}, 4 + seed)});
      const auto made = [&](const std::string& result) {
        const Tensor t = noisy(output("rotary_attention", inputs, attributes, result), is_actual ? 7 : 8);
        return is_actual && result == wrong ? plus(t, .01, t) : t;
      };
      d.add({0, mb, f, "attn.o_proj", "input", "input", 0}, made("out"));
      d.add({0, mb, b, "attn.o_proj", "grad_input", "input", 0}, inputs.back().tensor);
      for (const char* name : {"q", "k", "v"})
        d.add({0, mb, b, std::string("attn.") + name + "_proj", "grad_output", "y", 0},
              made(std::string("grad_") + name));
    }
  };
}

TEST(HiddenOrders, ShowInGradients) {
  const Report right = isolated(small_scores(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  for (const char* name : {"q", "k", "v"}) {
    const std::string module = std::string("attn.") + name + "_proj";
    EXPECT_EQ(finding(right, module, "grad_output").unjudged, "") << name;
    EXPECT_EQ(created(isolated(small_scores(std::string("grad_") + name))),
              std::vector<std::string>(2, module + " grad_output y"));
  }
}

}  // namespace
}  // namespace assay::hidden_orders_test
