// Attention that programs make between their modules, of sequences with padding.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::hidden_masks_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t sequences = 2, keys = 24, width = 32;

struct Program {
  std::string op;
  Attributes attributes;
  std::int64_t queries;
  bool left;                  ///< where the padding is
  DType mask = DType::int64;  ///< floats: added to scores [B, 1, L, S]
};

// Of the second sequence a quarter is padding.
std::vector<double> there(bool left, std::int64_t shifted_by = 0) {
  std::vector<double> all;
  for (std::int64_t s = 0; s < sequences * keys; ++s) {
    const std::int64_t at = (s % keys + keys - shifted_by) % keys;
    const bool is_padding = left ? at < keys / 4 : at >= keys - keys / 4;
    all.push_back(s >= keys && is_padding ? 0 : 1);
  }
  return all;
}

Tensor mask_of(const Program& p, std::int64_t shifted_by = 0, bool as_flags = false) {
  const std::vector<double> visible = there(p.left, shifted_by);
  if (!is_float(p.mask)) return Tensor::from_values(p.mask, {sequences, keys}, visible);
  std::vector<double> bias;
  for (std::int64_t i = 0; i < sequences * p.queries * keys; ++i) {
    const std::int64_t key = i / (p.queries * keys) * keys + i % keys;
    bias.push_back(visible[static_cast<std::size_t>(key)] != 0 ? 0 : -max_finite(p.mask));
  }
  const Shape shape = {sequences, 1, p.queries, keys};
  if (!as_flags) return Tensor::from_values(p.mask, shape, bias);
  for (double& v : bias) v = v == 0 ? 1 : 0;
  return Tensor::from_values(DType::boolean, shape, bias);
}

// `wrong`: what the actual side does with its mask.
enum class Wrong { nothing, left_out, shifted };
auto recorded(const Program& p, Wrong wrong, const std::string& unseen_of_actual = "mean",
              bool as_flags = false) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const auto some = [&](std::int64_t tokens, std::uint64_t number) {
        return normal_tensor(DType::float32, {sequences, tokens, width}, number + seed);
      };
      std::vector<NamedTensor> inputs = {{"q", some(p.queries, 1)},
                                         {"k", some(keys, 2)},
                                         {"v", some(keys, 3)},
                                         {"grad_out", some(p.queries, 4)}};
      d.add({0, mb, f, "", "input", "seen", 0}, mask_of(p, 0, is_actual && as_flags));
      for (std::size_t i = 0; i < 3; ++i)
        d.add({0, mb, f, "attn." + inputs[i].name + "_proj", "output", "y", 0}, inputs[i].tensor);
      Attributes attributes = p.attributes;
      attributes.set("unseen", std::string(is_actual ? unseen_of_actual : "mean"));
      if (!is_actual || wrong != Wrong::left_out)
        inputs.push_back({"mask", mask_of(p, is_actual && wrong == Wrong::shifted ? 1 : 0)});
      const auto made = [&](const std::string& result) {
        return noisy(output(p.op, inputs, attributes, result), is_actual ? 7 : 8);
      };
      d.add({0, mb, f, "attn.o_proj", "input", "input", 0}, made("out"));
      d.add({0, mb, b, "attn.o_proj", "grad_input", "input", 0}, inputs[3].tensor);
      for (const char* name : {"q", "k", "v"})
        d.add({0, mb, b, std::string("attn.") + name + "_proj", "grad_output", "y", 0},
              made(std::string("grad_") + name));
    }
  };
}

class HiddenMask : public testing::TestWithParam<Program> {};

TEST_P(HiddenMask, IsFoundAndWhoLeavesItOutOrMovesItIs) {
  const Report right = isolated(recorded(GetParam(), Wrong::nothing));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  for (const char* module : {"attn.q_proj", "attn.k_proj", "attn.v_proj"})
    EXPECT_EQ(finding(right, module, "grad_output").unjudged, "") << module;
  for (const Wrong wrong : {Wrong::left_out, Wrong::shifted}) {
    const std::vector<std::string> first = created(isolated(recorded(GetParam(), wrong)));
    ASSERT_FALSE(first.empty());
    EXPECT_EQ(first.front(), "attn.o_proj input input");
  }
}

const Attributes of_encoder = {{"head_dim", 8}, {"is_causal", false}}, of_decoder = {{"head_dim", 8}};

INSTANTIATE_TEST_SUITE_P(
    Programs, HiddenMask,
    testing::Values(Program{"rotary_attention", of_encoder, keys, false},
                    Program{"rotary_attention", of_encoder, keys, true, DType::boolean},
                    Program{"rotary_attention", of_encoder, keys, false, DType::float32},
                    Program{"rotary_attention", of_encoder, keys, false, DType::bfloat16},
                    Program{"rotary_attention", of_decoder, keys, true},
                    Program{"cross_attention", {{"head_dim", 8}}, 12, false},
                    Program{"cross_attention", {{"head_dim", 8}}, 12, false, DType::float32}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

// Eager attention adds a bias, sdpa takes flags.
TEST(HiddenMasks, MayBeABiasOnOneSideAndFlagsOnTheOther) {
  const Program p = {"rotary_attention", of_decoder, keys, true, DType::float32};
  const Report right = isolated(recorded(p, Wrong::nothing, "zeros", true));
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  for (const Finding& x : right.findings) {
    if (x.id.module == "attn.o_proj") {
      EXPECT_NE(x.verdict, Verdict::failed) << x.name;
    }
  }
  const Report shifted = isolated(recorded(p, Wrong::shifted, "zeros", true));
  EXPECT_EQ(finding(shifted, "attn.o_proj", "input").verdict, Verdict::failed);
}

// Of queries that see no key softmax makes the mean of all values, and fused kernels make zeros.
TEST(HiddenMasks, QueriesThatSeeNothingMayHaveEither) {
  const Report right =
      isolated(recorded({"rotary_attention", of_decoder, keys, true}, Wrong::nothing, "zeros"));
  for (const Finding& x : right.findings) EXPECT_NE(x.verdict, Verdict::failed) << x.name;
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  EXPECT_EQ(created(right), std::vector<std::string>());
}

}  // namespace
}  // namespace assay::hidden_masks_test
