// The scan of Mamba-2 between a convolution and what is behind it, and what is around it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::hidden_scan_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t tokens = 12, heads = 4, groups = 2, V = 3, N = 5, I = heads * V,
                       C = I + 2 * groups * N, Y = I + C + heads;

struct Program {
  std::string xBC;  ///< the module that gives it
  Attributes attributes;
};

// One projection of the gate, xBC and dt; a convolution of xBC, and what goes into the last projection.
auto recorded(const Program& p, const std::string& wrong = "", const Attributes& of_actual = {}) {
  return [=](MemoryDump& d, bool is_actual) {
    std::vector<NamedTensor> params;
    std::vector<std::vector<double>> sums;
    for (const char* name : {"A_log", "D", "dt_bias"}) {
      params.push_back({name, normal_tensor(DType::float32, {heads}, 1 + params.size())});
      d.add({0, -1, f, "mixer", "param", name, 0}, params.back().tensor);
      sums.emplace_back(heads, 0);
    }
    const bool is_last = p.attributes.has("channels_last") && p.attributes.flag("channels_last");
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const Shape of_xBC = is_last ? Shape{1, tokens, C} : Shape{1, C, tokens + 3};
      std::vector<NamedTensor> inputs = {
          {"xBC", normal_tensor(DType::float32, of_xBC, 4 + seed)},
          {"zxbcdt", normal_tensor(DType::float32, {1, tokens, Y}, 5 + seed)},
          {"grad_out", normal_tensor(DType::float32, {1, tokens, I}, 6 + seed)}};
      inputs.insert(inputs.end(), params.begin(), params.end());
      d.add({0, mb, f, "mixer.in_proj", "output", "y", 0}, inputs[1].tensor);
      d.add({0, mb, f, p.xBC, "output", "y", 0}, inputs[0].tensor);
      Attributes attributes = p.attributes;
      for (const auto& [name, value] : of_actual.values()) {
        if (is_actual) attributes.set(name, value);
      }
      const auto made = compute_golden(find_operator("mamba2_scan"), inputs, attributes, Level::fp64);
      const auto given = [&](const std::string& name) {
        const Tensor t = noisy(single(output_named(made, name)), is_actual ? 7 : 8);
        return is_actual && wrong == name ? with_one_wrong(t) : t;
      };
      d.add({0, mb, f, "mixer.out_proj", "input", "input", 0}, given("out"));
      d.add({0, mb, b, "mixer.out_proj", "grad_input", "input", 0}, inputs[2].tensor);
      d.add({0, mb, b, p.xBC, "grad_output", "y", 0}, given("grad_xBC"));
      d.add({0, mb, b, "mixer.in_proj", "grad_output", "y", 0}, given("grad_zxbcdt"));
      for (std::size_t i = 0; i < params.size(); ++i) {
        const std::vector<double> of_batch = given("grad_" + params[i].name).values();
        for (std::size_t h = 0; h < of_batch.size(); ++h) sums[i][h] += of_batch[h];
      }
    }
    for (std::size_t i = 0; i < params.size(); ++i) {
      d.add({0, -1, b, "mixer", "grad", params[i].name, 0},
            Tensor::from_values(DType::float32, {heads}, sums[i]));
    }
  };
}

class HiddenScan : public testing::TestWithParam<Program> {};

TEST_P(HiddenScan, IsJudgedAndAWrongElementIsFound) {
  const Report right = isolated(recorded(GetParam()));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& x : right.findings) {
    const bool is_result = x.id.slot == "output" || x.id.slot == "grad_input";
    if (!is_result) {
      EXPECT_EQ(x.unjudged, "") << x.name;
    }
  }
  for (const auto& [output, where] :
       {std::pair<std::string, std::string>{"out", "mixer.out_proj input input"},
        {"grad_xBC", GetParam().xBC + " grad_output y"},
        {"grad_zxbcdt", "mixer.in_proj grad_output y"}})
    EXPECT_EQ(created(isolated(recorded(GetParam(), output))), std::vector<std::string>(2, where));
}

TEST_P(HiddenScan, OtherNumbersAreFound) {
  for (const Attributes& other :
       {Attributes{{"n_groups", 1}}, Attributes{{"dt_min", 0.5}}, Attributes{{"dt_max", 1}}})
    EXPECT_EQ(isolated(recorded(GetParam(), "", other)).exit_status(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, HiddenScan,
    testing::Values(Program{"mixer.conv1d", {{"n_groups", groups}, {"head_dim", V}}},
                    Program{"mixer.act",
                            {{"n_groups", groups}, {"head_dim", V}, {"activation", "none"}, {"gated", true}}},
                    Program{"mixer.act",
                            {{"n_groups", groups},
                             {"head_dim", V},
                             {"activation", "none"},
                             {"channels_last", true},
                             {"dt_min", 0.001}}}));

}  // namespace
}  // namespace assay::hidden_scan_test
