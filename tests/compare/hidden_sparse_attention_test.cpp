// DeepSeek's sparse attention: an indexer chooses the keys that each query sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isolated.h"

namespace assay::hidden_sparse_attention_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t tokens = 24, heads = 2, turning = 4, index_heads = 3, index_dim = 8, chosen = 6;
constexpr std::int64_t alike = 3;  // this key and the next have the same score for any query

enum class Wrong { nothing, worst_key, dense, other_of_alike };

Tensor table(double (*of)(double)) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tokens * turning; ++i) {
    const auto pair = static_cast<double>(i % (turning / 2));
    values.push_back(of(static_cast<double>(i / turning) * std::pow(100, -2 * pair / turning)));
  }
  return single(Tensor::from_values(DType::float32, {1, tokens, turning}, values));
}

// Without what turns, which differs by the place.
Tensor keys_of_indexer(std::uint64_t seed) {
  Values k = normal_tensor(DType::float32, {1, tokens, index_dim}, seed).values();
  for (std::int64_t c = 0; c < index_dim; ++c) {
    const auto at = [&](std::int64_t key) { return static_cast<std::size_t>(key * index_dim + c); };
    if (c < turning) k[at(alike)] = 0;
    k[at(alike + 1)] = k[at(alike)];
  }
  return Tensor::from_values(DType::float32, {1, tokens, index_dim}, k);
}

// The first row from which exactly one of those alike was chosen takes the other one.
Tensor with_other_of_alike(const Tensor& index) {
  Values all = index.values();
  for (auto row = all.begin() + (alike + 1) * chosen; row != all.end(); row += chosen) {
    const auto one = std::find(row, row + chosen, alike), other = std::find(row, row + chosen, alike + 1);
    if ((one == row + chosen) == (other == row + chosen)) continue;
    *(one == row + chosen ? other : one) = one == row + chosen ? alike : alike + 1;
    break;
  }
  return Tensor::from_values(DType::int64, index.shape(), all);
}

// The last query takes a key that it did not choose for the best of those that it did.
Tensor with_worst_key(const Tensor& index) {
  Values all = index.values();
  const auto row = all.end() - chosen;
  double key = 0;
  while (std::find(row, all.end(), key) != all.end()) ++key;
  *row = key;
  return Tensor::from_values(DType::int64, index.shape(), all);
}

auto recorded(Wrong wrong, const std::string& style) {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor cos = table(std::cos), sin = table(std::sin);
    for (const std::int64_t mb : {0, 1}) {
      const auto some = [&](std::int64_t channels, std::uint64_t seed) {
        return normal_tensor(DType::float32, {1, tokens, channels},
                             seed + static_cast<std::uint64_t>(10 * mb));
      };
      const auto add = [&](const char* module, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, mb, std::string(slot).starts_with("grad") ? b : f, module, slot, arg, 0}, t);
      };
      add("rotary_emb", "output", "0", cos);
      add("rotary_emb", "output", "1", sin);
      std::vector<NamedTensor> of_indexer = {{"q", some(index_heads * index_dim, 1)},
                                             {"k", keys_of_indexer(static_cast<std::uint64_t>(2 + 10 * mb))},
                                             {"head_weights", some(index_heads, 3)},
                                             {"cos", cos},
                                             {"sin", sin}};
      std::vector<NamedTensor> inputs = {
          {"q", some(16, 4)}, {"kv", some(20, 5)}, {"compressed", some(12, 6)}, {"cos", cos}, {"sin", sin}};
      add("attn.q_b_proj", "output", "y", inputs[0].tensor);
      add("attn.kv_a_proj", "output", "y", inputs[2].tensor);
      add("attn.kv_b_proj", "output", "y", inputs[1].tensor);
      add("attn.indexer.wq_b", "output", "y", of_indexer[0].tensor);
      add("attn.indexer.k_norm", "output", "y", of_indexer[1].tensor);
      add("attn.indexer.weights_proj", "output", "y", of_indexer[2].tensor);
      Tensor index = output_named(compute_golden(find_operator("lightning_indexer"), of_indexer,
                                                 {{"top_k", chosen}, {"style", style.c_str()}}, Level::fp64),
                                  "index");
      if (is_actual && wrong == Wrong::worst_key) index = with_worst_key(index);
      if (is_actual && wrong == Wrong::other_of_alike) index = with_other_of_alike(index);
      add("attn.indexer", "output", "y", index);
      inputs.push_back({"grad_out", some(12, 7)});
      if (!is_actual || wrong != Wrong::dense) inputs.push_back({"selected", index});
      const auto made = [&](const std::string& result) {
        return noisy(output("latent_attention", inputs, {{"heads", heads}, {"style", style.c_str()}}, result),
                     is_actual ? 7 : 8);
      };
      add("attn.o_proj", "input", "input", made("out"));
      add("attn.o_proj", "grad_input", "input", inputs[5].tensor);
      add("attn.q_b_proj", "grad_output", "y", made("grad_q"));
      add("attn.kv_b_proj", "grad_output", "y", made("grad_kv"));
      add("attn.kv_a_proj", "grad_output", "y", made("grad_compressed"));
    }
  };
}

class SparseAttention : public testing::TestWithParam<std::string> {};

TEST_P(SparseAttention, IsJudgedByTheKeysThatWereChosen) {
  const Report right = isolated(recorded(Wrong::nothing, GetParam()));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& x : right.findings) {
    if (x.id.slot == "input" || x.id.slot == "grad_output" || x.id.module == "attn.indexer") {
      EXPECT_EQ(x.unjudged, "") << x.name;
    }
  }
  const std::vector<std::string> dense = created(isolated(recorded(Wrong::dense, GetParam())));
  EXPECT_EQ(std::ranges::count(dense, "attn.o_proj input input"), 2);
  EXPECT_EQ(std::ranges::count(dense, "attn.indexer output y"), 0);
}

TEST_P(SparseAttention, AKeyThatIsNotAmongTheBestIsFoundWhereItIsChosen) {
  const Report report = isolated(recorded(Wrong::worst_key, GetParam()));
  EXPECT_EQ(created(report), std::vector<std::string>(2, "attn.indexer output y"));
}

TEST_P(SparseAttention, OfEqualScoresEitherMayBeChosen) {
  const Report report = isolated(recorded(Wrong::other_of_alike, GetParam()));
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(finding(report, "attn.indexer", "output").verdict, Verdict::exempt);
}

INSTANTIATE_TEST_SUITE_P(Styles, SparseAttention, testing::Values("half", "interleaved"));

}  // namespace
}  // namespace assay::hidden_sparse_attention_test
