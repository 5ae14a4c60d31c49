// Calls that programs make between their modules, of one operator in several places.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::hidden_calls_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// HunYuan: queries and keys turn, and then they are normed by head, each in a module of its own.
auto turned_and_normed(bool one_wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t tokens = 24, width = 8;
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < tokens; ++i) places.push_back(i);
    const std::vector<NamedTensor> ids = {{"position_ids", Tensor::from_indices({1, tokens}, places)}};
    const Attributes rotary = {{"rotary_dim", static_cast<double>(width)}};
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const Tensor cos = output("rotary_embedding", ids, rotary, "cos"),
                   sin = output("rotary_embedding", ids, rotary, "sin");
      d.add({0, mb, f, "rotary", "output", "cos", 0}, cos);
      d.add({0, mb, f, "rotary", "output", "sin", 0}, sin);
      std::uint64_t number = 1;
      for (const auto& [name, heads] : {std::pair<std::string, std::int64_t>{"q", 4}, {"k", 2}}) {
        const Tensor x = normal_tensor(DType::float32, {2, tokens, heads * width}, seed + number++),
                     g = normal_tensor(DType::float32, {2, heads, tokens, width}, seed + number++);
        const std::vector<NamedTensor> inputs = {{"x", x}, {"cos", cos}, {"sin", sin}, {"grad_y", g}};
        const auto made = [&](const char* result) { return output("apply_rotary", inputs, {}, result); };
        d.add({0, mb, f, "attn." + name + "_proj", "output", "y", 0}, x);
        const Tensor y = made("y"), grad_x = made("grad_x");
        const bool is_wrong = one_wrong && is_actual && name == "k";
        d.add({0, mb, f, "attn." + name + "_norm", "input", "x", 0}, is_wrong ? with_one_wrong(y) : y);
        d.add({0, mb, b, "attn." + name + "_norm", "grad_input", "x", 0}, g);
        d.add({0, mb, b, "attn." + name + "_proj", "grad_output", "y", 0},
              is_wrong ? with_one_wrong(grad_x) : grad_x);
      }
    }
  };
}

TEST(HiddenCalls, OfOneOperatorInOnePlaceAreApart) {
  const Report right = isolated(turned_and_normed(false));
  EXPECT_EQ(right.exit_status(), 0);
  for (const char* module : {"attn.q_norm", "attn.k_norm"})
    EXPECT_EQ(finding(right, module, "input").unjudged, "") << module;
  for (const char* module : {"attn.q_proj", "attn.k_proj"})
    EXPECT_EQ(finding(right, module, "grad_output").unjudged, "") << module;
  EXPECT_EQ(created(isolated(turned_and_normed(true))),
            (std::vector<std::string>{"attn.k_norm input x", "attn.k_proj grad_output y",
                                      "attn.k_norm input x", "attn.k_proj grad_output y"}));
}

// Queries of a decoder see the keys of an encoder: there are more of these.
auto crossed(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t queries = 12, keys = 20, width = 32;
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const std::vector<NamedTensor> inputs = {
          {"q", normal_tensor(DType::float32, {2, queries, width}, 1 + seed)},
          {"k", normal_tensor(DType::float32, {2, keys, width}, 2 + seed)},
          {"v", normal_tensor(DType::float32, {2, keys, width}, 3 + seed)},
          {"grad_out", normal_tensor(DType::float32, {2, queries, width}, 4 + seed)}};
      const auto made = [&](const std::string& result) {
        const Tensor t =
            noisy(output("cross_attention", inputs, {{"head_dim", 8}}, result), is_actual ? 7 : 8);
        return is_actual && wrong == result ? with_one_wrong(t) : t;
      };
      for (std::size_t i = 0; i < 3; ++i)
        d.add({0, mb, f, "attn." + inputs[i].name + "_proj", "output", "y", 0}, inputs[i].tensor);
      d.add({0, mb, f, "attn.o_proj", "input", "input", 0}, made("out"));
      d.add({0, mb, b, "attn.o_proj", "grad_input", "input", 0}, inputs.back().tensor);
      for (const char* name : {"q", "k", "v"})
        d.add({0, mb, b, std::string("attn.") + name + "_proj", "grad_output", "y", 0},
              made(std::string("grad_") + name));
    }
  };
}

TEST(HiddenCalls, OfTwoSequencesAreJudged) {
  const Report right = isolated(crossed(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  for (const char* module : {"attn.q_proj", "attn.k_proj", "attn.v_proj"})
    EXPECT_EQ(finding(right, module, "grad_output").unjudged, "") << module;
  EXPECT_EQ(created(isolated(crossed("out"))), std::vector<std::string>(2, "attn.o_proj input input"));
  EXPECT_EQ(created(isolated(crossed("grad_k"))), std::vector<std::string>(2, "attn.k_proj grad_output y"));
}

}  // namespace
}  // namespace assay::hidden_calls_test
