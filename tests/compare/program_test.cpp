// Programs whose recorder knows modules only: what they compute between them is found by its values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::program_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// Projections, tables of angles, and what the last projection is given.
auto attention(const Attributes& of_actual, const std::string& wrong = "") {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      std::vector<std::int64_t> positions;
      for (std::int64_t i = 0; i < 6; ++i) positions.push_back(i);
      const Tensor ids = Tensor::from_indices({1, 6}, positions);
      const std::vector<NamedTensor> of_table = {{"position_ids", ids}};
      const Tensor cos = output("rotary_embedding", of_table, {{"rotary_dim", 4}}, "cos"),
                   sin = output("rotary_embedding", of_table, {{"rotary_dim", 4}}, "sin"),
                   q = normal_tensor(DType::float32, {2, 6, 8}, 1 + seed),
                   k = normal_tensor(DType::float32, {2, 6, 4}, 2 + seed),
                   v = normal_tensor(DType::float32, {2, 6, 4}, 3 + seed),
                   g = normal_tensor(DType::float32, {2, 6, 8}, 4 + seed);
      const auto made = compute_golden(
          find_operator("rotary_attention"),
          std::vector<NamedTensor>{{"q", q}, {"k", k}, {"v", v}, {"cos", cos}, {"sin", sin}, {"grad_out", g}},
          is_actual ? of_actual : Attributes(), Level::fp64);
      const auto given = [&](const char* name) {
        const Tensor t = noisy(single(output_named(made, name)), is_actual ? 7 : 8);
        return is_actual && wrong == name ? with_one_wrong(t) : t;
      };
      d.add({0, mb, f, "rotary", "input", "position_ids", 0}, ids).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "rotary", "input", "x", 0}, q).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "rotary", "output", "0", 0}, cos).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "rotary", "output", "1", 0}, sin).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "attn.q_proj", "output", "y", 0}, q);
      d.add({0, mb, f, "attn.k_proj", "output", "y", 0}, k);
      d.add({0, mb, f, "attn.v_proj", "output", "y", 0}, v);
      d.add({0, mb, f, "attn.o_proj", "input", "input", 0}, given("out"));
      d.add({0, mb, b, "attn.o_proj", "grad_input", "input", 0}, g);
      d.add({0, mb, b, "attn.v_proj", "grad_output", "y", 0}, given("grad_v"));
      d.add({0, mb, b, "attn.k_proj", "grad_output", "y", 0}, given("grad_k"));
      d.add({0, mb, b, "attn.q_proj", "grad_output", "y", 0}, given("grad_q"));
    }
  };
}

TEST(Program, AttentionThatNoModuleMakesIsJudged) {
  const Report right = isolated(attention({}));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(created(right), std::vector<std::string>());
  for (const auto& [output, name] : {std::pair("out", "attn.o_proj input input"),
                                     {"grad_v", "attn.v_proj grad_output y"},
                                     {"grad_k", "attn.k_proj grad_output y"},
                                     {"grad_q", "attn.q_proj grad_output y"}})
    EXPECT_EQ(created(isolated(attention({}, output))), (std::vector<std::string>{name, name}));
}

TEST(Program, ItsAttributesAreNamed) {
  const Report report = isolated(attention({{"scale", 0.6}}));
  const Finding& first = finding(report, "attn.o_proj", "input");
  ASSERT_FALSE(first.diagnoses.empty());
  EXPECT_EQ(first.diagnoses.front().cause, Cause::attribute);
  EXPECT_NE(sentence(first.diagnoses.front()).find("scale = 0.6"), std::string::npos)
      << sentence(first.diagnoses.front());
}

TEST(Program, ItsWrongWindowsAreNamed) {
  for (const auto& [attributes, text] :
       {std::pair(Attributes{{"window_size", std::vector<double>{2, -1}}}, "window_size = [2,-1]"),
        {{{"is_causal", false}, {"window_size", std::vector<double>{-1, 1}}}, "window_size = [-1,1]"},
        {{{"style", "by_pair"}}, "style = \"by_pair\""}}) {
    const Report report = isolated(attention(attributes));
    const Finding& first = finding(report, "attn.o_proj", "input");
    ASSERT_FALSE(first.diagnoses.empty()) << text;
    EXPECT_EQ(first.diagnoses.front().cause, Cause::attribute);
    EXPECT_NE(sentence(first.diagnoses.front()).find(text), std::string::npos)
        << sentence(first.diagnoses.front());
  }
}

// The same of latent attention, whose compressed keys go through a norm, too.
auto latent_attention(const Attributes& of_actual, const std::string& wrong = "", double stretched = 1) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(20 * mb);
      const Tensor ids = Tensor::from_indices({1, 6}, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
      Values cosines, sines;
      for (int i = 0; i < 24; ++i) {
        const double angle = stretched * (i / 4) * (i % 2 == 0 ? 1 : 0.01);
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
      const Tensor cos = Tensor::from_values(DType::float32, {1, 6, 4}, cosines),
                   sin = Tensor::from_values(DType::float32, {1, 6, 4}, sines),
                   q = normal_tensor(DType::float32, {2, 6, 14}, 1 + seed),
                   kv = normal_tensor(DType::float32, {2, 6, 16}, 2 + seed),
                   compressed = normal_tensor(DType::float32, {2, 6, 9}, 3 + seed),
                   g = normal_tensor(DType::float32, {2, 6, 10}, 4 + seed),
                   through_norm = normal_tensor(DType::float32, {2, 6, 5}, 5 + seed);
      Attributes attributes = is_actual ? of_actual : Attributes();
      attributes.set("heads", 2.);
      const auto made = compute_golden(
          find_operator("latent_attention"),
          std::vector<NamedTensor>{
              {"q", q}, {"kv", kv}, {"compressed", compressed}, {"cos", cos}, {"sin", sin}, {"grad_out", g}},
          attributes, Level::fp64);
      Values first, whole = noisy(single(output_named(made, "grad_compressed")), is_actual ? 7 : 8).values();
      for (std::size_t token = 0; token < 12; ++token) {
        for (std::size_t c = 0; c < 5; ++c) {
          first.push_back(compressed.values()[9 * token + c]);
          whole[9 * token + c] += through_norm.values()[5 * token + c];
        }
      }
      const auto given = [&](const std::string& name, const Tensor& right) {
        const Tensor t = name == "grad_compressed" ? right : noisy(single(right), is_actual ? 7 : 8);
        return is_actual && wrong == name ? with_one_wrong(t) : t;
      };
      const auto add = [&](Phase phase, const std::string& module, const char* slot, const char* arg,
                           const Tensor& t) {
        d.add({0, mb, phase, module, slot, arg, 0}, t);
      };
      d.add({0, mb, f, "rotary", "input", "position_ids", 0}, ids).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "rotary", "input", "x", 0}, q).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "rotary", "output", "0", 0}, cos).op = "SomeRotaryEmbedding";
      d.add({0, mb, f, "rotary", "output", "1", 0}, sin).op = "SomeRotaryEmbedding";
      for (const std::uint64_t other : {6, 7, 8}) {
        const std::string module = "attn.other" + std::to_string(other);
        add(f, module, "output", "y", normal_tensor(DType::float32, {2, 6, 4}, other + seed));
        add(b, module, "grad_output", "y", normal_tensor(DType::float32, {2, 6, 4}, other + 3 + seed));
      }
      add(f, "attn.q_b_proj", "output", "y", q);
      add(f, "attn.kv_a_proj", "output", "y", compressed);
      add(f, "attn.kv_norm", "input", "x", Tensor::from_values(DType::float32, {2, 6, 5}, first));
      add(f, "attn.kv_b_proj", "output", "y", kv);
      add(f, "attn.o_proj", "input", "input", given("out", output_named(made, "out")));
      add(b, "attn.o_proj", "grad_input", "input", g);
      add(b, "attn.kv_b_proj", "grad_output", "y", given("grad_kv", output_named(made, "grad_kv")));
      add(b, "attn.kv_norm", "grad_input", "x", through_norm);
      add(b, "attn.kv_a_proj", "grad_output", "y",
          given("grad_compressed", Tensor::from_values(DType::float32, {2, 6, 9}, whole)));
      add(b, "attn.q_b_proj", "grad_output", "y", given("grad_q", output_named(made, "grad_q")));
    }
  };
}

TEST(Program, LatentAttentionIsJudged) {
  const Report right = isolated(latent_attention({}));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(created(right), std::vector<std::string>());
  for (const auto& [output, name] : {std::pair("out", "attn.o_proj input input"),
                                     {"grad_kv", "attn.kv_b_proj grad_output y"},
                                     {"grad_compressed", "attn.kv_a_proj grad_output y"},
                                     {"grad_q", "attn.q_b_proj grad_output y"}})
    EXPECT_EQ(created(isolated(latent_attention({}, output))), (std::vector<std::string>{name, name}));
}

TEST(Program, TablesOfUnknownAnglesAreKnownByTheirLackOfGradients) {
  const Report right = isolated(latent_attention({}, "", 0.3));
  EXPECT_EQ(finding(right, "attn.o_proj", "input").unjudged, "");
  const std::vector<std::string> names(2, "attn.o_proj input input");
  EXPECT_EQ(created(isolated(latent_attention({}, "out", 0.3))), names);
}

TEST(Program, AttributesOfLatentAttentionAreNamed) {
  for (const auto& [attributes, text] : {std::pair(Attributes{{"scale", 0.5}}, "scale = 0.5"),
                                         {Attributes{{"style", "half"}}, "style = \"half\""},
                                         {Attributes{{"is_causal", false}}, "is_causal = false"}}) {
    const Report report = isolated(latent_attention(attributes));
    const Finding& first = finding(report, "attn.o_proj", "input");
    ASSERT_FALSE(first.diagnoses.empty()) << text;
    EXPECT_EQ(first.diagnoses.front().cause, Cause::attribute);
    EXPECT_NE(sentence(first.diagnoses.front()).find(text), std::string::npos)
        << sentence(first.diagnoses.front());
  }
}

// A router that makes its own logits, of hidden states by sequence, keeps few groups and scales its weights:
// no result shows all of its attributes, and its gradients have one token dimension.
// @param results  the numbers of logits, weights and index among them
// @param bias     the name under which it is given one for its choice; empty: it has none
auto router(const std::string& wrong, const std::array<const char*, 3>& results = {"0", "1", "2"},
            const std::string& bias = "") {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor weight = normal_tensor(DType::float32, {8, 6}, 71);
    d.add({0, -1, f, "gate", "param", "weight", 0}, weight);
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const Tensor x = normal_tensor(DType::float32, {2, 6, 6}, 72 + seed);
      Values of_weights = normal_tensor(DType::float32, {12, 2}, 73 + seed).values();
      of_weights[1] = of_weights[0];  // the first token's choice has another order on the actual side
      const Tensor g = Tensor::from_values(DType::float32, {12, 2}, of_weights);
      const Attributes attributes = {{"top_k", 2.},
                                     {"score", "sigmoid"},
                                     {"scaling", 2.5},
                                     {"groups", std::vector<double>{4, 2}},
                                     {"group_top", 2.}};
      const Tensor logits = single(output("linear", {{"x", x}, {"w", weight}}, {}, "y")).reshaped({12, 8});
      std::vector<NamedTensor> inputs = {{"logits", logits}, {"grad_weights", g}};
      if (!bias.empty()) inputs.push_back({"expert_bias", normal_tensor(DType::float32, {8}, 74)});
      const auto made = compute_golden(find_operator("router_topk"), inputs, attributes, Level::fp64);
      const auto given = [&](const std::string& name, const Tensor& t) {
        return is_actual && wrong == name ? with_one_wrong(t) : t;
      };
      const Tensor grad_logits =
          given("grad_logits", noisy(single(output_named(made, "grad_logits")), is_actual ? 7 : 8));
      const Tensor grad_x = single(output(
          "linear", {{"x", x.reshaped({12, 6})}, {"w", weight}, {"grad_y", grad_logits}}, {}, "grad_x"));
      std::vector<std::int64_t> index = output_named(made, "index").indices();
      Values weights = output_named(made, "weights").values();
      if (is_actual) {
        std::swap(index[0], index[1]);
        std::swap(weights[0], weights[1]);
      }
      const auto add = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, mb, phase, "gate", slot, arg, 0}, t).op = "SomeRouter";
      };
      add(f, "input", "hidden_states", x);
      if (!bias.empty()) add(f, "input", bias.c_str(), inputs.back().tensor);
      add(f, "output", results[0], logits);
      add(f, "output", results[1], Tensor::from_values(DType::float32, {12, 2}, weights));
      add(f, "output", results[2], Tensor::from_indices({12, 2}, index));
      add(b, "grad_output", results[1], g);
      add(b, "grad_output", results[0], grad_logits);
      add(b, "grad_input", "hidden_states", given("grad_x", grad_x.reshaped({2, 6, 6})));
    }
  };
}

TEST(Program, ARouterIsJudgedThatNoResultShowsWhole) {
  const Report right = isolated(router(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0) << right.coverage->why_unjudged.front();
  EXPECT_EQ(created(isolated(router("grad_x"))),
            (std::vector<std::string>{"gate grad_input hidden_states", "gate grad_input hidden_states"}));
  EXPECT_EQ(created(isolated(router("grad_logits"))),
            (std::vector<std::string>{"gate grad_output 0", "gate grad_output 0"}));
}

// As MiniMax-M2's and LFM2-MoE's.
TEST(Program, ARouterMayBeGivenTheBiasOfItsChoice) {
  for (const char* bias : {"e_score_correction_bias", "expert_bias"}) {
    const Report right = isolated(router("", {"0", "1", "2"}, bias));
    EXPECT_EQ(right.exit_status(), 0);
    EXPECT_EQ(right.coverage->unjudged, 0) << right.coverage->why_unjudged.front();
    EXPECT_EQ(created(isolated(router("grad_logits", {"0", "1", "2"}, bias))),
              (std::vector<std::string>{"gate grad_output 0", "gate grad_output 0"}));
  }
}

// As GraniteMoE's: (index, weights, logits).
TEST(Program, AClassMayReturnItsResultsInAnotherOrder) {
  const Report right = isolated(router("", {"2", "1", "0"}));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0) << right.coverage->why_unjudged.front();
  EXPECT_EQ(created(isolated(router("grad_logits", {"2", "1", "0"}))),
            (std::vector<std::string>{"gate grad_output 2", "gate grad_output 2"}));
}

// As Llama 4's: (weights of all experts, logits), and no index.
TEST(Program, WeightsOfAllExpertsShowWhetherTheirChoiceIsLegal) {
  const auto record = [](std::int64_t chosen) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor weight = normal_tensor(DType::float32, {4, 6}, 91);
      d.add({0, -1, f, "router", "param", "weight", 0}, weight);
      for (const std::int64_t mb : {0, 1}) {
        const Tensor x = noisy(normal_tensor(DType::float32, {12, 6}, 92 + static_cast<std::uint64_t>(mb)),
                               is_actual ? 5 : 6);
        Values z = single(output("linear", {{"x", x}, {"w", weight}}, {}, "y")).values();
        const auto first = std::ranges::max_element(z.begin(), z.begin() + 4) - z.begin();
        Values scores(z.size(), 0);
        for (std::size_t row = 0; row < z.size(); row += 4) {
          auto best = static_cast<std::size_t>(
              std::ranges::max_element(z.begin() + static_cast<std::ptrdiff_t>(row),
                                       z.begin() + static_cast<std::ptrdiff_t>(row + 4)) -
              z.begin());
          if (row == 0 && mb == 0 && is_actual) best = static_cast<std::size_t>((first + chosen) % 4);
          scores[best] = 1 / (1 + std::exp(-z[best]));
        }
        const auto add = [&](const char* slot, const char* arg, const Tensor& t) {
          d.add({0, mb, f, "router", slot, arg, 0}, t).op = "SomeDenseRouter";
        };
        add("input", "hidden_states", x);
        add("output", "0", Tensor::from_values(DType::float32, {12, 4}, scores));
        add("output", "1", Tensor::from_values(DType::float32, {12, 4}, z));
      }
    };
  };
  const Report right = isolated(record(0));
  EXPECT_EQ(right.exit_status(), 0);
  ASSERT_TRUE(right.coverage);
  EXPECT_EQ(right.coverage->unjudged, 2) << "the inputs, which nobody made";
  EXPECT_EQ(created(isolated(record(1))), std::vector<std::string>{"router output 0"});
}

// A mask, which only one of two implementations needs.
TEST(Program, AnInputOfOneSideAloneIsSettledByWhatItsModuleMakes) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const Tensor x = normal_tensor(DType::float32, {8, 6}, 41 + seed),
                     y = normal_tensor(DType::float32, {8, 6}, 51 + seed);
        const Tensor sum = plus(x, 1, y);
        d.add({0, mb, f, "block", "input", "x", 0}, x);
        if (!is_actual)
          d.add({0, mb, f, "block", "input", "mask", 0}, normal_tensor(DType::float32, {8, 8}, 61 + seed));
        d.add({0, mb, f, "block.mlp", "output", "y", 0}, y);
        d.add({0, mb, f, "block", "output", "y", 0}, is_actual && wrong == "y" ? with_one_wrong(sum) : sum);
      }
    };
  };
  EXPECT_EQ(isolated(record("")).exit_status(), 0);
  const Report report = isolated(record("y"));
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(finding(report, "block", "input").verdict, Verdict::passed);
  EXPECT_EQ(std::ranges::count(report.findings, Verdict::missing_actual, &Finding::verdict), 2);
}

// A router that chooses fewer experts than the reference's, of the same tokens.
TEST(Program, AResultOfAnotherShapeThanItsInputsAskForFails) {
  const auto record = [](std::int64_t of_actual, std::int64_t later) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const Tensor x = normal_tensor(DType::float32, {8, 6}, 41 + static_cast<std::uint64_t>(mb));
        d.add({0, mb, f, "gate", "input", "x", 0}, x).op = "SomeRouter";
        const std::int64_t chosen = is_actual ? (mb == 0 ? of_actual : later) : 2;
        d.add({0, mb, f, "gate", "output", "weights", 0}, normal_tensor(DType::float32, {8, chosen}, 7)).op =
            "SomeRouter";
      }
    };
  };
  EXPECT_EQ(created(isolated(record(1, 1))), std::vector<std::string>(2, "gate output weights"));
  EXPECT_EQ(created(isolated(record(1, 2))), std::vector<std::string>())
      << "its shape may depend on what it was given";
}

// A shared expert whose gate no module applies, in a sum that two norms use.
auto gated_sum(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = 10 * static_cast<std::uint64_t>(mb);
      const Tensor x = normal_tensor(DType::bfloat16, {6, 16}, 71 + seed),
                   gate = normal_tensor(DType::bfloat16, {6, 1}, 72 + seed),
                   z = normal_tensor(DType::bfloat16, {6, 16}, 73 + seed),
                   r = normal_tensor(DType::bfloat16, {2, 3, 16}, 74 + seed),
                   first = normal_tensor(DType::bfloat16, {2, 3, 16}, 75 + seed),
                   second = normal_tensor(DType::bfloat16, {2, 3, 16}, 76 + seed);
      const auto made = compute_golden(
          find_operator("gated_add"),
          std::vector<NamedTensor>{
              {"x", x}, {"gate", gate}, {"z", z}, {"r", r}, {"grad_y", plus(first, 1, second)}},
          {}, Level::fp64);
      const auto given = [&](const char* name) {
        const Tensor& t = output_named(made, name);
        const Tensor narrow = Tensor::from_values(DType::bfloat16, t.shape(), t.values());
        return is_actual && wrong == name ? with_one_wrong(narrow) : narrow;
      };
      d.add({0, mb, f, "moe.norm", "input", "x", 0}, r);
      d.add({0, mb, f, "moe.experts", "output", "y", 0}, x);
      d.add({0, mb, f, "moe.down", "output", "y", 0}, z);
      d.add({0, mb, f, "moe.gate", "output", "y", 0}, gate);
      d.add({0, mb, f, "a.norm", "input", "x", 0}, given("y"));
      d.add({0, mb, f, "b.norm", "input", "x", 0}, given("y"));
      d.add({0, mb, b, "a.norm", "grad_input", "x", 0}, first);
      d.add({0, mb, b, "b.norm", "grad_input", "x", 0}, second);
      d.add({0, mb, b, "moe.down", "grad_output", "y", 0}, given("grad_z"));
      d.add({0, mb, b, "moe.gate", "grad_output", "y", 0}, given("grad_gate"));
      d.add({0, mb, b, "moe.experts", "grad_output", "y", 0}, given("grad_x"));
    }
  };
}

TEST(Program, AGradientThatIsASumGoesIntoACallThatNoModuleMakes) {
  const Report right = isolated(gated_sum(""));
  EXPECT_EQ(created(right), std::vector<std::string>());
  for (const char* module : {"moe.down", "moe.gate", "moe.experts"})
    EXPECT_EQ(finding(right, module, "grad_output").unjudged, "") << module;
  for (const auto& [output, name] : {std::pair("grad_z", "moe.down grad_output y"),
                                     {"grad_gate", "moe.gate grad_output y"},
                                     {"grad_x", "moe.experts grad_output y"}})
    EXPECT_EQ(created(isolated(gated_sum(output))), (std::vector<std::string>{name, name}));
}

TEST(Program, AFlippedBitIsDescribed) {
  RecordedPair pair;
  const Tensor right = normal_tensor(DType::bfloat16, {8, 8}, 61);
  Values values = right.values();
  values[19] = -values[19];
  pair.add({0, -1, f, "proj", "param", "weight", 0}, Tensor::from_values(DType::bfloat16, {8, 8}, values),
           right);
  const Report report = pair.diff();
  ASSERT_FALSE(report.findings.front().diagnoses.empty());
  const Diagnosis& d = report.findings.front().diagnoses.front();
  EXPECT_EQ(d.cause, Cause::flipped_bit);
  EXPECT_NE(sentence(d).find("[2, 3] has bit 15 (the sign) flipped"), std::string::npos) << sentence(d);
}

}  // namespace
}  // namespace assay::program_test
