// The gated delta rule between a convolution and a norm, as Qwen3-Next has it, and what is around it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::hidden_delta_net_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t tokens = 12, heads = 4, of_keys = 2, D = 6, V = 5;

enum class Gates : std::uint8_t { apart, of_one };

// One convolution of q, k and v, both gates, and what the norm behind it is given.
auto recorded(Gates gates, const std::string& wrong = "", const Attributes& of_actual = {}) {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor A_log = normal_tensor(DType::float32, {heads}, 1),
                 dt_bias = normal_tensor(DType::float32, {heads}, 2);
    d.add({0, -1, f, "mixer", "param", "A_log", 0}, A_log);
    d.add({0, -1, f, "mixer", "param", "dt_bias", 0}, dt_bias);
    std::vector<double> of_A(heads, 0), of_dt(heads, 0);
    const auto add_to = [](std::vector<double>& sums, const Tensor& t) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += t.values()[i];
    };
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      std::vector<NamedTensor> inputs = {
          {"qkv", normal_tensor(DType::float32, {1, 2 * of_keys * D + heads * V, tokens + 3}, 3 + seed)}};
      d.add({0, mb, f, "mixer.conv1d", "output", "y", 0}, inputs.front().tensor);
      for (const std::string& name :
           gates == Gates::apart ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"a"}) {
        const std::int64_t width = gates == Gates::apart ? heads : 2 * heads;
        inputs.push_back({name, normal_tensor(DType::float32, {1, tokens, width}, 4 + seed + inputs.size())});
        d.add({0, mb, f, "mixer.in_proj_" + name, "output", "y", 0}, inputs.back().tensor);
      }
      inputs.push_back({"A_log", A_log});
      inputs.push_back({"dt_bias", dt_bias});
      inputs.push_back({"grad_out", normal_tensor(DType::float32, {tokens * heads, V}, 8 + seed)});
      Attributes attributes = {{"num_k_heads", of_keys}, {"head_v_dim", V}};
      for (const auto& [name, value] : of_actual.values()) {
        if (is_actual) attributes.set(name, value);
      }
      const auto made = compute_golden(find_operator("qkv_gated_delta_net"), inputs, attributes, Level::fp64);
      const auto given = [&](const std::string& name) {
        const Tensor t = noisy(single(output_named(made, name)), is_actual ? 7 : 8);
        return is_actual && wrong == name ? with_one_wrong(t) : t;
      };
      d.add({0, mb, f, "mixer.norm", "input", "hidden_states", 0}, given("out"));
      d.add({0, mb, b, "mixer.norm", "grad_input", "hidden_states", 0}, inputs.back().tensor);
      d.add({0, mb, b, "mixer.conv1d", "grad_output", "y", 0}, given("grad_qkv"));
      d.add({0, mb, b, "mixer.in_proj_a", "grad_output", "y", 0}, given("grad_a"));
      if (gates == Gates::apart) d.add({0, mb, b, "mixer.in_proj_b", "grad_output", "y", 0}, given("grad_b"));
      add_to(of_A, given("grad_A_log"));
      add_to(of_dt, given("grad_dt_bias"));
    }
    d.add({0, -1, b, "mixer", "grad", "A_log", 0}, Tensor::from_values(DType::float32, {heads}, of_A));
    d.add({0, -1, b, "mixer", "grad", "dt_bias", 0}, Tensor::from_values(DType::float32, {heads}, of_dt));
  };
}

class HiddenDeltaNet : public testing::TestWithParam<Gates> {};

TEST_P(HiddenDeltaNet, IsJudgedAndAWrongElementIsFound) {
  const Report right = isolated(recorded(GetParam()));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& x : right.findings) {
    const bool is_result = x.id.slot == "output" || x.id.slot == "grad_input";
    if (!is_result) {
      EXPECT_EQ(x.unjudged, "") << x.name;
    }
  }
  for (const auto& [output, where] :
       {std::pair<std::string, std::string>{"out", "mixer.norm input hidden_states"},
        {"grad_qkv", "mixer.conv1d grad_output y"},
        {"grad_a", "mixer.in_proj_a grad_output y"}})
    EXPECT_EQ(created(isolated(recorded(GetParam(), output))), std::vector<std::string>(2, where));
}

TEST_P(HiddenDeltaNet, OtherNumbersAreFound) {
  for (const Attributes& other : {Attributes{{"scale", 0.4}}, Attributes{{"beta_scale", 1.01}},
                                  Attributes{{"activation", "none"}}, Attributes{{"l2_eps", 0.1}}})
    EXPECT_EQ(isolated(recorded(GetParam(), "", other)).exit_status(), 1);
}

INSTANTIATE_TEST_SUITE_P(Gates, HiddenDeltaNet, testing::Values(Gates::apart, Gates::of_one));

// A projection whose heads have two halves, each of which goes on as rows of heads.
auto halves(bool one_wrong, const std::string& wrong_gradient = "") {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor both = normal_tensor(DType::float32, {1, tokens, heads * 2 * V}, 1),
                 of_both = normal_tensor(DType::float32, {1, tokens, heads * 2 * V}, 2);
    const auto half = [&](const Tensor& t, std::int64_t which) {
      std::vector<double> values;
      for (std::int64_t row = 0; row < tokens * heads; ++row) {
        for (std::int64_t c = 0; c < V; ++c) values.push_back(t.value((2 * row + which) * V + c));
      }
      return Tensor::from_values(DType::float32, {tokens * heads, V}, values);
    };
    d.add({0, 0, f, "mixer.in_proj", "output", "y", 0}, both);
    for (const std::int64_t which : {0, 1}) {
      const std::string module = which == 0 ? "mixer.first" : "mixer.second";
      const Tensor t = half(both, which);
      d.add({0, 0, f, module, "input", "input", 0},
            one_wrong && is_actual && which == 1 ? with_one_wrong(t) : t);
      d.add({0, 0, b, module, "grad_input", "input", 0}, half(of_both, which));
    }
    d.add({0, 0, b, "mixer.in_proj", "grad_output", "y", 0},
          is_actual && !wrong_gradient.empty() ? with_one_wrong(of_both) : of_both);
  };
}

TEST(RowsOfHeads, AreColumnsOfTokens) {
  const Report right = isolated(halves(false));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& x : right.findings) EXPECT_EQ(x.unjudged, "") << x.name;
  EXPECT_EQ(created(isolated(halves(true))), std::vector<std::string>{"mixer.second input input"});
  EXPECT_EQ(created(isolated(halves(false, "y"))), std::vector<std::string>{"mixer.in_proj grad_output y"});
}

struct Windows {
  Shape x, weight;
  Attributes attributes;
};

class UnknownWindows : public testing::TestWithParam<Windows> {};

// No recorder wrote down how a convolution goes over what it is given.
TEST_P(UnknownWindows, AreSolved) {
  const auto [x_shape, w_shape, attributes] = GetParam();
  const auto record = [&](bool one_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = normal_tensor(DType::float32, x_shape, 1),
                   w = normal_tensor(DType::float32, w_shape, 2);
      const Shape made = output("conv", {{"x", x}, {"weight", w}}, attributes, "y").shape();
      const Tensor grad_y = normal_tensor(DType::float32, made, 3);
      const std::vector<NamedTensor> inputs = {{"x", x}, {"weight", w}, {"grad_y", grad_y}};
      const auto given = [&](const std::string& name) {
        return noisy(output("conv", inputs, attributes, name), is_actual ? 7 : 8);
      };
      const auto add = [&](Phase phase, std::int64_t mb, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, mb, phase, "patches", slot, arg, 0}, t).op = w_shape.size() == 3 ? "Conv1d" : "Conv2d";
      };
      add(f, -1, "param", "weight", w);
      add(f, 0, "input", "input", x);
      add(f, 0, "output", "y", one_wrong && is_actual ? with_one_wrong(given("y")) : given("y"));
      add(b, 0, "grad_output", "y", grad_y);
      add(b, 0, "grad_input", "input", given("grad_x"));
      add(b, -1, "grad", "weight", given("grad_weight"));
    };
  };
  const Report right = isolated(record(false));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0) << right.coverage->why_unjudged.front();
  EXPECT_EQ(created(isolated(record(true))), std::vector<std::string>{"patches output y"});
}

INSTANTIATE_TEST_SUITE_P(Convolutions, UnknownWindows,
                         testing::Values(Windows{{1, 8, 9}, {8, 1, 4}, {{"padding", 3}, {"groups", 8}}},
                                         Windows{{2, 3, 16}, {4, 3, 3}, {{"padding", 1}, {"stride", 2}}},
                                         Windows{{2, 3, 16}, {4, 3, 3}, {{"padding", 2}, {"dilation", 2}}},
                                         Windows{{1, 3, 12, 8}, {5, 3, 4, 4}, {{"stride", 4}}},
                                         Windows{{1, 2, 9, 6},
                                                 {3, 2, 3, 2},
                                                 {{"stride", 2}, {"padding", std::vector<double>{1, 0}}}}));

}  // namespace
}  // namespace assay::hidden_delta_net_test
