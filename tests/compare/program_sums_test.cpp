// Sums between the modules of a program: residuals, layers in their order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::program_sums_test {
namespace {

constexpr auto f = Phase::forward;

TEST(ProgramSums, ATermThatASumLacksOrCountsOtherwiseIsNamed) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const double times : {0.0, 0.5, 1.25}) {
      const auto record = [&](MemoryDump& d, bool is_actual) {
        for (const std::int64_t mb : {0, 1}) {
          const auto seed = static_cast<std::uint64_t>(mb);
          const Tensor x = normal_tensor(dtype, {8, 6}, 41 + seed),
                       y = normal_tensor(dtype, {8, 6}, 51 + seed);
          d.add({0, mb, f, "layers.0.norm", "input", "x", 0}, x);
          d.add({0, mb, f, "layers.0.mlp", "output", "y", 0}, y);
          d.add({0, mb, f, "layers.1.norm", "input", "x", 0}, plus(x, is_actual ? times : 1, y));
        }
      };
      const Report report = isolated(record);
      const Finding& wrong = finding(report, "layers.1.norm", "input");
      ASSERT_FALSE(wrong.diagnoses.empty()) << times;
      const CauseParameters& p = wrong.diagnoses.front().parameters;
      EXPECT_EQ(wrong.diagnoses.front().cause, times == 0 ? Cause::missing_term : Cause::added) << times;
      EXPECT_NEAR(times == 0 ? -1 : p.factor.value(), times - 1, 1e-3);
      EXPECT_NE(p.tensor.find("layers.0.mlp output y"), std::string::npos) << p.tensor;
    }
  }
}

// As Granite has them: the embedding and what each layer adds are multiplied with numbers of the
// configuration.
TEST(ProgramSums, FactorsOfAModelAreKnown) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto record = [dtype](const std::string& wrong) {
      return [=](MemoryDump& d, bool is_actual) {
        const auto number = [&](const char* name, double right) {
          return is_actual && wrong == name ? 1.25 * right : right;
        };
        for (const std::int64_t mb : {0, 1}) {
          const auto noise = [&, seed = 20 * static_cast<std::uint64_t>(mb)](std::uint64_t of) {
            return noisy(normal_tensor(dtype, {64, 16}, seed + of), is_actual ? 1 : 2);
          };
          const Tensor e = noise(1), y = noise(2), g0 = noise(3), g1 = noise(4), none(dtype, {64, 16}),
                       x = plus(none, number("embed", 12), e);
          d.add({0, mb, f, "embed", "output", "y", 0}, e);
          d.add({0, mb, f, "layers.0.norm", "input", "x", 0}, x);
          d.add({0, mb, f, "layers.0.mlp", "output", "y", 0}, y);
          d.add({0, mb, f, "layers.1.norm", "input", "x", 0}, plus(x, number("layer", 0.22), y));
          d.add({0, mb, Phase::backward, "layers.1.norm", "grad_input", "x", 0}, g1);
          d.add({0, mb, Phase::backward, "layers.0.mlp", "grad_output", "y", 0},
                plus(none, number("grad of layer", 0.22), g1));
          d.add({0, mb, Phase::backward, "layers.0.norm", "grad_input", "x", 0}, g0);
          d.add({0, mb, Phase::backward, "embed", "grad_output", "y", 0},
                plus(none, number("grad of embed", 12), plus(g0, 1, g1)));
        }
      };
    };
    const Report clean = isolated(record(""));
    EXPECT_EQ(clean.exit_status(), 0);
    for (const auto& [name, module, slot] : {std::tuple("embed", "layers.0.norm", "input"),
                                             {"layer", "layers.1.norm", "input"},
                                             {"grad of layer", "layers.0.mlp", "grad_output"},
                                             {"grad of embed", "embed", "grad_output"}}) {
      EXPECT_EQ(finding(clean, module, slot).unjudged, "") << name;
      const std::string at = fmt::format("{} {} {}", module, slot, std::string(slot) == "input" ? "x" : "y");
      EXPECT_EQ(created(isolated(record(name))), std::vector<std::string>(2, at))
          << name << " " << assay::name(dtype);
    }
  }
}

// Which are the same in all sequences: their gradient is the sum over these.
TEST(ProgramSums, PositionsAreATermOfAllSequences) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      constexpr std::int64_t sequences = 3, rows = 8, width = 6;
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const auto noise = [&](const Tensor& t) { return noisy(t, is_actual ? 1 : 2); };
        const Tensor tokens = noise(normal_tensor(DType::float32, {sequences, rows, width}, 41 + seed)),
                     positions = noise(normal_tensor(DType::float32, {rows, width}, 51 + seed)),
                     g = noise(normal_tensor(DType::float32, {sequences, rows, width}, 61 + seed));
        Values sum = tokens.values(), of_positions(static_cast<std::size_t>(rows * width), 0);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] += positions.value(static_cast<std::int64_t>(i % of_positions.size()));
          of_positions[i % of_positions.size()] += g.value(static_cast<std::int64_t>(i));
        }
        const auto made = [&](const Shape& shape, const Values& values, const std::string& name) {
          const Tensor t = Tensor::from_values(DType::float32, shape, values);
          return wrong == name && is_actual ? with_one_wrong(t) : t;
        };
        d.add({0, mb, f, "tokens", "output", "y", 0}, tokens);
        d.add({0, mb, f, "positions", "output", "y", 0}, positions);
        d.add({0, mb, f, "norm", "input", "x", 0}, made(tokens.shape(), sum, "norm input x"));
        d.add({0, mb, Phase::backward, "norm", "grad_input", "x", 0}, g);
        d.add({0, mb, Phase::backward, "tokens", "grad_output", "y", 0}, g);
        d.add({0, mb, Phase::backward, "positions", "grad_output", "y", 0},
              made(positions.shape(), of_positions, "positions grad_output y"));
      }
    };
  };
  EXPECT_EQ(created(isolated(record(""))), std::vector<std::string>());
  for (const char* wrong : {"norm input x", "positions grad_output y"})
    EXPECT_EQ(created(isolated(record(wrong))), std::vector<std::string>(2, wrong));
}

// Of a sum of three in bfloat16, each element of which may be rounded twice.
TEST(ProgramSums, AFactorOfASumThatIsSmallerThanARoundingIsFound) {
  const auto record = [](double factor) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        Values sum(64 * 64, 0);
        for (const char* module : {"layers.0.norm", "layers.0.attn", "layers.0.mlp"}) {
          const auto seed = 10 * static_cast<std::uint64_t>(mb) + static_cast<std::uint64_t>(module[9]);
          const Tensor x = noisy(normal_tensor(DType::bfloat16, {64, 64}, seed), is_actual ? 1 : 2);
          for (std::size_t i = 0; i < sum.size(); ++i)
            sum[i] += (is_actual ? factor : 1) * x.value(static_cast<std::int64_t>(i));
          d.add({0, mb, f, module, module[9] == 'n' ? "input" : "output", "x", 0}, x);
        }
        d.add({0, mb, f, "layers.1.norm", "input", "x", 0},
              Tensor::from_values(DType::bfloat16, {64, 64}, sum));
      }
    };
  };
  EXPECT_EQ(created(isolated(record(1))), std::vector<std::string>());
  const Report report = isolated(record(1.001));
  EXPECT_EQ(created(report), std::vector<std::string>(2, "layers.1.norm input x"));
  const Finding& wrong = finding(report, "layers.1.norm", "input");
  ASSERT_FALSE(wrong.diagnoses.empty());
  EXPECT_EQ(wrong.diagnoses.front().cause, Cause::factor);
  EXPECT_NEAR(wrong.diagnoses.front().parameters.factor.value(), 1.001, 2e-4);
}

// Three layers, each a sum; the actual side runs the second after the third, or not at all.
auto layers(const std::vector<int>& order) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const int layer : {0, 1, 2})
      d.add({0, -1, f, "layers." + std::to_string(layer) + ".norm", "param", "weight", 0},
            normal_tensor(DType::float32, {6}, 5 + static_cast<std::uint64_t>(layer)));
    for (const std::int64_t mb : {0, 1}) {
      Tensor x = normal_tensor(DType::float32, {8, 6}, 41 + static_cast<std::uint64_t>(mb));
      for (const int layer : is_actual ? order : std::vector<int>{0, 1, 2}) {
        const std::string name = "layers." + std::to_string(layer);
        const auto seed = 10 * static_cast<std::uint64_t>(layer) + static_cast<std::uint64_t>(mb);
        const Tensor y = normal_tensor(DType::float32, {8, 6}, 51 + seed);
        d.add({0, mb, f, name + ".norm", "input", "x", 0}, x);
        d.add({0, mb, f, name + ".mlp", "output", "y", 0}, y);
        x = plus(x, 1, y);
      }
      d.add({0, mb, f, "norm", "input", "x", 0}, x);
    }
  };
}

TEST(ProgramSums, LayersThatRunInAnotherOrderAreNamed) {
  const Report report = isolated(layers({0, 2, 1}));
  const Finding& wrong = *report.first_failure();
  EXPECT_EQ(wrong.id.module, "layers.1.norm");
  ASSERT_FALSE(wrong.diagnoses.empty());
  EXPECT_EQ(wrong.diagnoses.front().cause, Cause::other_tensor);
  EXPECT_NE(wrong.diagnoses.front().parameters.tensor.find("layers.2.norm input x"), std::string::npos);
}

// The value that goes on is known by that record alone.
TEST(ProgramSums, ARecordThatTheReferenceLacksIsNoEndlessSource) {
  const Report report = isolated([](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(mb);
      const auto noise = [&](const Tensor& t) { return noisy(t, is_actual ? 1 : 2); };
      Tensor x = noise(normal_tensor(DType::float32, {8, 6}, 41 + seed));
      for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
        const Tensor y =
            noise(normal_tensor(DType::float32, {8, 6}, 10 * seed + static_cast<std::uint64_t>(layer[7])));
        if (is_actual || mb == 0 || layer[7] != '1')
          d.add({0, mb, f, std::string(layer) + ".norm", "input", "x", 0}, x);
        d.add({0, mb, f, std::string(layer) + ".mlp", "output", "y", 0}, y);
        x = plus(x, 1, y);
      }
      d.add({0, mb, f, "norm", "input", "x", 0}, x);
    }
  });
  EXPECT_EQ(created(report), std::vector<std::string>());
  EXPECT_EQ(std::ranges::count(report.findings, Verdict::missing_reference, &Finding::verdict), 1);
}

TEST(ProgramSums, ALayerThatIsNotComputedComesFirst) {
  const Report report = isolated(layers({0, 2}));
  const Finding& wrong = *report.first_failure();
  EXPECT_EQ(wrong.id.module, "layers.1.norm");
  ASSERT_FALSE(wrong.diagnoses.empty());
  EXPECT_EQ(wrong.diagnoses.front().cause, Cause::missing_layer);
  EXPECT_EQ(wrong.diagnoses.front().parameters.module, "layers.1");
}

}  // namespace
}  // namespace assay::program_sums_test
