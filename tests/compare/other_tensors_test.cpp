// Causes that lie in other recorded tensors, or in the pieces of the tensor itself.
#include <gmock/gmock.h>

#include <cmath>

#include "recorded_pair.h"

namespace assay::other_tensors_test {
namespace {

constexpr DType f32 = DType::float32;

Identity param(const std::string& module, Phase phase = Phase::forward) {
  return {0, -1, phase, module, "param", "weight", 0};
}
Identity grad(const std::string& module) {
  return {0, -1, Phase::backward, module, "grad", "weight", 0};
}
Identity output(const std::string& module) {
  return {0, 0, Phase::forward, module, "output", "y", 0};
}

bool says(const Finding& f, const Diagnosis& expected) {
  return std::ranges::any_of(f.diagnoses, [&](const Diagnosis& d) { return agrees(d, expected); });
}
const Finding& of(const Report& r, const Identity& id) {
  return *std::ranges::find(r.findings, id, &Finding::id);
}

// Rows [begin, end).
Tensor rows(const Tensor& t, std::int64_t begin, std::int64_t end) {
  return gather_view(t, {end - begin, t.shape()[1]}, {t.shape()[1], 1}, begin * t.shape()[1]);
}
Tensor above(const Tensor& a, const Tensor& b) {
  Values all = a.values();
  const Values more = b.values();
  all.insert(all.end(), more.begin(), more.end());
  return Tensor::from_values(f32, {a.shape()[0] + b.shape()[0], a.shape()[1]}, all);
}

TEST(OtherTensors, TokensOfAnotherMicroBatch) {
  const auto tokens = [](std::int64_t step, std::int64_t mb) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < 32; ++i) all.push_back((7 * i * i + 31 * step + 13 * mb + i * mb) % 97);
    return Tensor::from_indices({32}, all);
  };
  const auto with = [&](const Tensor& wrong) {
    RecordedPair run;
    for (const std::int64_t step : {0, 1}) {
      for (const std::int64_t mb : {0, 1}) {
        const Identity id{step, mb, Phase::forward, "embed", "input", "input", 0};
        run.add(id, step == 1 && mb == 1 ? wrong : tokens(step, mb), tokens(step, mb));
      }
    }
    const Report report = run.diff();
    EXPECT_EQ(report.exit_status(), 1);
    return of(report, {1, 1, Phase::forward, "embed", "input", "input", 0});
  };
  EXPECT_TRUE(says(with(tokens(0, 1)), {Cause::stale, {.step = 0}}));
  EXPECT_TRUE(says(with(tokens(1, 0)), {Cause::stale, {.micro_batch = 0}}));
  EXPECT_FALSE(says(with(tokens(2, 2)), {Cause::stale}));
}

// Two layers, each with gate and up.
struct Layers {
  std::map<std::string, Tensor> right;
  Layers() {
    for (const char* name : {"layers.0.gate", "layers.0.up", "layers.1.gate", "layers.1.up"})
      right.emplace(name, normal_tensor(f32, {8, 16}, 1 + right.size()));
  }
  Finding with(const std::string& name, const Tensor& wrong) const {
    RecordedPair run;
    run.actual.mesh = {{"tp"}, {2}};
    for (const auto& [module, w] : right) run.add(param(module), module == name ? wrong : w, w);
    const Report report = run.diff();
    return of(report, param(name));
  }
};

TEST(OtherTensors, TheWeightsOfAnotherLayer) {
  const Layers m;
  const Finding f = m.with("layers.1.gate", m.right.at("layers.0.gate"));
  EXPECT_TRUE(says(f, {Cause::other_tensor, {.tensor = to_string(param("layers.0.gate"))}}));
  EXPECT_FALSE(says(m.with("layers.1.gate", normal_tensor(f32, {8, 16}, 9)), {Cause::other_tensor}));
}

TEST(OtherTensors, PiecesOfTheMatrixBesideIt) {
  const Layers m;
  const Tensor &gate = m.right.at("layers.1.gate"), &up = m.right.at("layers.1.up");
  const Finding f = m.with("layers.1.gate", above(rows(gate, 0, 4), rows(up, 0, 4)));
  EXPECT_TRUE(says(f, {Cause::other_tensor,
                       {.elements = 1,
                        .of = 2,
                        .along = "rows",
                        .positions = {1},
                        .tensor = to_string(param("layers.1.up"))}}));
}

TEST(OtherTensors, PiecesThatWereAddedUp) {
  const Layers m;
  const Tensor& w = m.right.at("layers.0.up");
  const Tensor sum = plus(rows(w, 0, 4), 1, rows(w, 4, 8));
  EXPECT_TRUE(
      says(m.with("layers.0.up", above(sum, sum)), {Cause::sum_of_pieces, {.of = 2, .along = "rows"}}));
  EXPECT_FALSE(says(m.with("layers.0.up", above(sum, rows(w, 4, 8))), {Cause::sum_of_pieces}));
}

TEST(OtherTensors, TheGradientOfTheMatrixBesideIt) {
  const Tensor gate = normal_tensor(f32, {8, 16}, 1), up = normal_tensor(f32, {8, 16}, 2);
  RecordedPair run;
  run.add(grad("mlp.gate"), gate);
  run.add(grad("mlp.up"), plus(up, 1, gate), up);
  const Report report = run.diff();
  EXPECT_TRUE(
      says(of(report, grad("mlp.up")), {Cause::added, {.factor = 1, .tensor = to_string(grad("mlp.gate"))}}));
}

TEST(OtherTensors, RowsOfATableThatWereNotMasked) {
  const Tensor table = normal_tensor(f32, {32, 16}, 1), y = normal_tensor(f32, {4, 16}, 2);
  RecordedPair run;
  run.add(param("embed"), table);
  run.add(output("embed"), plus(y, 1, above(rows(table, 7, 9), rows(table, 20, 22))), y);
  const Report report = run.diff();
  EXPECT_TRUE(says(of(report, output("embed")), {Cause::added, {.factor = 1, .term = "other rows"}}));
}

TEST(OtherTensors, TheLogarithmOfASize) {
  const Tensor loss = normal_tensor(f32, {16}, 1);
  const Tensor one = Tensor::from_values(f32, {16}, Values(16, 1));
  const auto with = [&](double constant) {
    RecordedPair run;
    run.actual.mesh = {{"tp"}, {3}};
    run.add(output("head"), plus(loss, constant, one), loss);
    return run.diff().findings.front();
  };
  EXPECT_TRUE(says(with(std::log(3)), {Cause::added, {.factor_names = {"log tp"}, .term = "a constant"}}));
  EXPECT_FALSE(says(with(1), {Cause::added})) << "a number that no size makes";
}

TEST(OtherTensors, AColumnThatGotAnother) {
  const Tensor g = normal_tensor(f32, {16, 4}, 1);
  Values wrong = g.values();
  for (std::size_t i = 0; i < wrong.size(); i += 4) wrong[i] += wrong[i + 3];
  RecordedPair run;
  run.add(output("router"), Tensor::from_values(f32, {16, 4}, wrong), g);
  EXPECT_TRUE(
      says(run.diff().findings.front(), {Cause::added, {.factor = 1, .positions = {0}, .term = "column 3"}}));
}

// Far below the tolerance's 1e-4: only beside what the tensor is it says anything.
TEST(OtherTensors, AFactorOfSmallGradientsIsNamed) {
  const Tensor small = normal_tensor(f32, {16, 16}, 1, 1e-5);
  Values half = small.values();
  for (double& v : half) v /= 2;
  RecordedPair run;
  run.actual.mesh = {{"dp"}, {2}};
  run.add(grad("norm"), Tensor::from_values(f32, {16, 16}, half), small);
  EXPECT_TRUE(says(run.diff().findings.front(), {Cause::factor, {.factor = 0.5, .factor_names = {"1/dp"}}}));
}

// A step of two ranks, of which the second did not get the update, or half of it.
struct Copies {
  Tensor before = normal_tensor(f32, {8, 4}, 1), after = plus(before, 1e-2, normal_tensor(f32, {8, 4}, 2));
  Finding with(const Tensor& first, const Tensor& second) const {
    MemoryDump a("a"), r("r");
    a.world_size = 2;
    a.mesh = {{"pp"}, {2}};
    a.add_copy(param("head"), 0, before), a.add_copy(param("head"), 1, before);
    r.add(param("head"), before);
    a.add_copy(param("head", Phase::optimizer), 0, first);
    a.add_copy(param("head", Phase::optimizer), 1, second);
    r.add(param("head", Phase::optimizer), after);
    DiffOptions options;
    options.policies.push_back(load_policy("telechat3"));
    const Report report = diff(a, r, options);
    return of(report, param("head", Phase::optimizer));
  }
};

TEST(OtherTensors, ACopyThatWasNotUpdated) {
  const Copies c;
  EXPECT_TRUE(says(c.with(c.after, c.before), {Cause::not_updated, {.of = 32, .axis = "pp", .rank = 1}}));
  EXPECT_TRUE(says(c.with(above(rows(c.after, 0, 4), rows(c.before, 4, 8)), c.after),
                   {Cause::not_updated, {.elements = 16, .of = 32, .axis = "pp"}}));
}

TEST(OtherTensors, SmallCopiesThatAddUp) {
  const Tensor g = normal_tensor(f32, {8, 4}, 1, 1e-5), share = normal_tensor(f32, {8, 4}, 2, 1e-5);
  MemoryDump a("a"), r("r");
  a.world_size = 2;
  a.mesh = {{"tp"}, {2}};
  a.add_copy(grad("norm"), 0, share), a.add_copy(grad("norm"), 1, plus(g, -1, share));
  r.add(grad("norm"), g);
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  EXPECT_TRUE(says(diff(a, r, options).findings.front(), {Cause::partial_sum, {.axis = "tp"}}));
}

}  // namespace
}  // namespace assay::other_tensors_test
