// Attention that programs make between their modules, in the ways that models of the world have it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::hidden_attention_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t tokens = 24;

struct Program {
  std::string op;
  std::vector<std::pair<std::string, std::int64_t>> projections;  ///< inputs and their channels
  std::int64_t rotary;                                            ///< channels of a head that turn
  std::int64_t channels;                                          ///< of the result
  Attributes attributes;
  std::int64_t heads_first = 0;  ///< channels of a head of q and k that are [B, heads, L, D]
  std::int64_t sinks = 0;
  bool has_complex_tables = false;
  Shape tables = {1, tokens};  ///< and their columns
};

// cos + i sin of each pair.
Tensor complex_of(const Tensor& cos, const Tensor& sin) {
  const std::int64_t R = cos.shape().back(), rows = cos.size() / R;
  std::vector<double> cis;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t p = 0; p < R / 2; ++p) {
      cis.push_back(cos.value(row * R + p));
      cis.push_back(sin.value(row * R + p));
    }
  }
  return Tensor::from_values(DType::float32, {1, rows, R / 2, 2}, cis);
}

// Those of the first pairs where the style has one for a pair, else all.
Tensor columns_of(const Tensor& table, const Program& p) {
  const bool of_pairs =
      complete_attributes(find_operator(p.op), p.attributes).text("style").ends_with("_of_pairs");
  const std::int64_t R = p.rotary, C = of_pairs ? R / 2 : R;
  std::vector<double> values;
  for (std::int64_t row = 0; row < table.size() / R; ++row) {
    for (std::int64_t c = 0; c < C; ++c) values.push_back(table.value(row * R + c));
  }
  Shape shape = p.tables;
  shape.push_back(C);
  return Tensor::from_values(DType::float32, shape, values);
}

// Projections, tables of angles, and what the last projection is given.
auto recorded(const Program& p, const Attributes& of_actual = {}, bool one_wrong = false,
              bool other_gradient = false) {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor sinks = normal_tensor(DType::float32, {p.sinks}, 5);
    if (p.sinks > 0) d.add({0, -1, f, "attn", "param", "sinks", 0}, sinks);
    Values of_sinks(static_cast<std::size_t>(p.sinks), 0);
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      std::vector<NamedTensor> inputs;
      for (const auto& [name, width] : p.projections) {
        const bool by_head = p.heads_first > 0 && (name == "q" || name == "k");
        const Shape shape =
            by_head ? Shape{1, width / p.heads_first, tokens, p.heads_first} : Shape{1, tokens, width};
        inputs.push_back({name, normal_tensor(DType::float32, shape, 1 + seed + inputs.size())});
        d.add({0, mb, f, "attn." + name + "_proj", "output", "y", 0}, inputs.back().tensor);
      }
      if (p.rotary > 0) {
        std::vector<std::int64_t> positions;
        for (std::int64_t i = 0; i < tokens; ++i) positions.push_back(i);
        const std::vector<NamedTensor> ids = {{"position_ids", Tensor::from_indices({1, tokens}, positions)}};
        const Attributes width = {{"rotary_dim", static_cast<double>(p.rotary)}};
        const Tensor cos = output("rotary_embedding", ids, width, "cos"),
                     sin = output("rotary_embedding", ids, width, "sin");
        const std::vector<NamedTensor> tables = {{"cos", columns_of(cos, p)}, {"sin", columns_of(sin, p)}},
                                       complex = {{"cis", complex_of(cos, sin)}};
        for (const NamedTensor& table : p.has_complex_tables ? complex : tables) {
          inputs.push_back(table);
          d.add({0, mb, f, "rotary", "output", table.name, 0}, table.tensor);
        }
      }
      if (p.sinks > 0) {
        inputs.push_back({"sink", sinks});
        d.add({0, mb, f, "attn", "output", "0", 0}, normal_tensor(DType::float32, {1, tokens, 4}, 40 + seed));
      }
      const std::uint64_t handed_back = other_gradient && is_actual ? 99 : 8;
      inputs.push_back(
          {"grad_out", normal_tensor(DType::float32, {1, tokens, p.channels}, handed_back + seed)});
      Attributes attributes = p.attributes;
      for (const auto& [name, value] : of_actual.values()) {
        if (is_actual) attributes.set(name, value);
      }
      const auto made = compute_golden(find_operator(p.op), inputs, attributes, Level::fp64);
      const auto given = [&](const std::string& name) {
        return noisy(single(output_named(made, name)), is_actual ? 7 : 8);
      };
      d.add({0, mb, f, "attn.o_proj", "input", "input", 0},
            one_wrong && is_actual ? with_one_wrong(given("out")) : given("out"));
      d.add({0, mb, b, "attn.o_proj", "grad_input", "input", 0}, inputs.back().tensor);
      for (const auto& [name, width] : p.projections)
        d.add({0, mb, b, "attn." + name + "_proj", "grad_output", "y", 0}, given("grad_" + name));
      for (std::size_t h = 0; h < of_sinks.size(); ++h)
        of_sinks[h] += output_named(made, "grad_sink").values()[h];
    }
    if (p.sinks > 0)
      d.add({0, -1, b, "attn", "grad", "sinks", 0}, Tensor::from_values(DType::float32, {p.sinks}, of_sinks));
  };
}

const std::vector<std::pair<std::string, std::int64_t>> three = {{"q", 32}, {"k", 16}, {"v", 16}},
                                                        of_one = {{"qkv", 64}};

std::vector<std::pair<std::string, std::int64_t>> gated_by(std::int64_t channels) {
  auto all = three;
  all.emplace_back("gate", channels);
  return all;
}

class HiddenAttention : public testing::TestWithParam<Program> {};

TEST_P(HiddenAttention, IsJudgedAndAWrongElementIsFound) {
  const Report right = isolated(recorded(GetParam()));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  EXPECT_EQ(created(isolated(recorded(GetParam(), {}, true))),
            std::vector<std::string>(2, "attn.o_proj input input"));
}

// They are right by what was handed back, which is the reference's no more.
TEST(HiddenAttentionSources, GradientsFollowFromThatOfTheResult) {
  const Report report = isolated(recorded({"rotary_attention", three, 8, 32, {}}, Attributes(), false, true));
  for (const Finding& x : report.findings) EXPECT_NE(x.verdict, Verdict::exempt) << x.name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, HiddenAttention,
    testing::Values(
        Program{"rotary_attention", three, 0, 32, {{"head_dim", 8}}},
        Program{"rotary_attention", three, 4, 32, {{"head_dim", 8}}},
        Program{"rotary_attention", three, 8, 32, {{"style", "by_pair"}}},
        Program{"rotary_attention", three, 8, 32, {{"window_size", std::vector<double>{11, -1}}}},
        Program{"rotary_attention", three, 8, 32, {{"softcap", 50}, {"scale", 0.9}}},
        Program{"rotary_attention", three, 8, 32, {{"heads_first", true}, {"scale", 0.3}}, 8},
        Program{"rotary_attention", three, 8, 32, {}, 0, 4},
        Program{"rotary_attention", three, 8, 32, {}, 0, 0, true},
        Program{"rotary_attention", three, 8, 32, {}, 0, 0, false, {tokens}},
        Program{"rotary_attention", three, 8, 32, {}, 0, 0, false, {1, tokens, 1}},
        Program{"rotary_attention", three, 8, 32, {{"style", "half_of_pairs"}}, 0, 0, false, {tokens}},
        Program{"rotary_attention",
                three,
                4,
                32,
                {{"style", "interleaved_of_pairs"}, {"head_dim", 8}},
                0,
                0,
                false,
                {1, 1, tokens}},
        Program{"rotary_attention", three, 0, 32, {{"head_dim", 8}, {"alibi", "distance"}}},
        Program{"gated_attention", gated_by(32), 8, 32, {}},
        Program{"gated_attention", gated_by(4), 0, 32, {{"head_dim", 8}, {"gating", "softplus"}}},
        Program{"gated_attention", gated_by(64), 4, 32, {{"heads_first", true}}, 8},
        Program{"qkv_attention", of_one, 0, 32, {{"heads", 4}, {"groups", 2}}},
        Program{"qkv_attention",
                {{"qkv", 72}},
                0,
                24,
                {{"heads", 3}, {"layout", "groups"}, {"alibi", "first_key"}}},
        Program{"qkv_attention",
                {{"qkv", 72}},
                0,
                24,
                {{"heads", 3}, {"alibi", "last_key"}, {"alibi_bias_max", 16}}},
        Program{"qkv_attention",
                of_one,
                0,
                32,
                {{"heads", 4}, {"groups", 2}, {"layout", "groups"}, {"alibi", "scaled"}}},
        Program{"qkv_attention", of_one, 4, 32, {{"heads", 4}, {"groups", 2}, {"layout", "groups"}}}),
    [](const auto& info) { return info.param.op + std::to_string(info.index); });

TEST(HiddenSinks, TheirGradientIsJudged) {
  const Report right = isolated(recorded({"rotary_attention", three, 8, 32, {}, 0, 4}));
  EXPECT_EQ(finding(right, "attn", "grad").unjudged, "");
}

Attributes null_of(const std::string& attribute) {
  Attributes a;
  a.set(attribute, std::monostate());
  return a;
}

class WrongAlibi : public testing::TestWithParam<std::pair<Attributes, std::string>> {};

TEST_P(WrongAlibi, IsNamed) {
  const Program biased = {
      "qkv_attention", {{"qkv", 72}}, 0, 24, {{"heads", 3}, {"layout", "groups"}, {"alibi", "first_key"}}};
  const Report report = isolated(recorded(biased, GetParam().first));
  const Finding& first = finding(report, "attn.o_proj", "input");
  ASSERT_FALSE(first.diagnoses.empty());
  EXPECT_NE(sentence(first.diagnoses.front()).find(GetParam().second), std::string::npos)
      << sentence(first.diagnoses.front());
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, WrongAlibi,
    testing::Values(
        std::pair<Attributes, std::string>{null_of("alibi"), "no alibi, where the reference has alibi"},
        std::pair<Attributes, std::string>{{{"alibi", "scaled"}},
                                           "alibi = \"scaled\", where the reference has alibi = "},
        std::pair<Attributes, std::string>{{{"alibi", "scaled_twice"}},
                                           "alibi = \"scaled_twice\", where the reference has alibi = "},
        std::pair<Attributes, std::string>{{{"alibi_slopes", "all_heads"}},
                                           "alibi_slopes = \"all_heads\", where the reference has"},
        std::pair<Attributes, std::string>{{{"alibi_slopes", "from_one"}},
                                           "alibi_slopes = \"from_one\", where the reference has"}));

TEST(HiddenCap, IsNamedWhereItIsLeftOut) {
  const Program capped = {"rotary_attention", three, 8, 32, {{"softcap", 50}, {"scale", 2}}};
  const Report report = isolated(recorded(capped, {{"softcap", 0}}));
  const Finding& first = finding(report, "attn.o_proj", "input");
  ASSERT_FALSE(first.diagnoses.empty());
  EXPECT_NE(sentence(first.diagnoses.front()).find("softcap = 0, where the reference has softcap = 50"),
            std::string::npos)
      << sentence(first.diagnoses.front());
}

// Phi-3: half of a projection goes through a module of its own and meets the other half behind it.
auto half_gated(bool one_wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const Tensor gate_up = normal_tensor(DType::float32, {1, tokens, 16}, 51 + seed),
                   gate = gather_view(gate_up, {1, tokens, 8}, {tokens * 16, 16, 1}, 0),
                   act = noisy(output("silu", std::vector<NamedTensor>{{"x", gate}}, {}, "y"), 7),
                   g = normal_tensor(DType::float32, {1, tokens, 8}, 53 + seed);
      const std::vector<NamedTensor> inputs = {{"a", act}, {"x", gate_up}, {"grad_y", g}};
      const auto given = [&](const char* name) { return output("mul_half", inputs, {}, name); };
      d.add({0, mb, f, "mlp.gate_up_proj", "output", "y", 0}, gate_up);
      d.add({0, mb, f, "mlp.act", "input", "input", 0}, gate).op = "SiLU";
      d.add({0, mb, f, "mlp.act", "output", "y", 0}, act).op = "SiLU";
      d.add({0, mb, f, "mlp.down_proj", "input", "input", 0}, given("y"));
      d.add({0, mb, b, "mlp.down_proj", "grad_input", "input", 0}, g);
      const Tensor of_act = given("grad_a");
      d.add({0, mb, b, "mlp.act", "grad_output", "y", 0},
            one_wrong && is_actual ? with_one_wrong(of_act) : of_act)
          .op = "SiLU";
    }
  };
}

TEST(HalfGated, IsJudgedAndAWrongElementIsFound) {
  const Report right = isolated(half_gated(false));
  EXPECT_EQ(finding(right, "mlp.act", "grad_output").unjudged, "");
  EXPECT_EQ(finding(right, "mlp.down_proj", "input").unjudged, "");
  EXPECT_EQ(created(isolated(half_gated(true))), std::vector<std::string>(2, "mlp.act grad_output y"));
}

// torch's Linear calls its input so; the weight is recorded with the embedding.
TEST(TiedEmbedding, IsJudgedWhateverTheInputIsCalled) {
  const Report right = isolated([](MemoryDump& d, bool is_actual) {
    const Tensor w = normal_tensor(DType::float32, {32, 8}, 81),
                 x = normal_tensor(DType::float32, {6, 8}, 82);
    const std::vector<NamedTensor> inputs = {{"x", x}, {"w", w}};
    d.add({0, -1, f, "embedding", "param", "weight", 0}, w);
    d.add({0, 0, f, "head", "input", "input", 0}, x).op = "Linear";
    const Tensor y = output_named(compute_golden(find_operator("linear"), inputs, {}, Level::fp64), "y");
    d.add({0, 0, f, "head", "output", "y", 0}, noisy(single(y), is_actual ? 7 : 8)).op = "Linear";
  });
  EXPECT_EQ(finding(right, "head", "output").unjudged, "");
}

}  // namespace
}  // namespace assay::hidden_attention_test
