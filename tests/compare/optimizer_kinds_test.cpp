// Steps of other optimizers than AdamW, made by the operators in float32 with other attributes; and norms
// that were not recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "assay/operators/engine/golden.h"
#include "optimizer_fault.h"

namespace assay::optimizer_kinds_test {
namespace {

const std::map<std::string, Shape>& matrices() {
  static const std::map<std::string, Shape> all = {{"model.layers.0.self_attn.q_proj", {24, 16}},
                                                   {"model.layers.0.mlp.up_proj", {16, 20}},
                                                   {"model.layers.1.mlp.experts.*.up_proj", {3, 12, 8}}};
  return all;
}

Tensor slice(const Tensor& t, std::int64_t k, const Shape& shape) {
  const std::vector<double> all = t.values();
  const auto n = static_cast<std::ptrdiff_t>(element_count(shape));
  const std::vector<double> part(all.begin() + k * n, all.begin() + (k + 1) * n);
  return Tensor::from_values(DType::float32, shape, part);
}

// One step; of experts matrix by matrix.
std::vector<NamedTensor> step_of(const std::string& op, const Attributes& attributes, const Tensor& param,
                                 const Tensor& gradient, const Tensor* buffer) {
  const Shape& whole = param.shape();
  const std::int64_t count = whole.size() == 3 ? whole.front() : 1;
  const Shape shape = whole.size() == 3 ? Shape{whole[1], whole[2]} : whole;
  Shape row = {1};
  row.insert(row.end(), shape.begin(), shape.end());
  std::map<std::string, std::vector<double>> made;
  for (std::int64_t k = 0; k < count; ++k) {
    std::vector<NamedTensor> inputs = {{"param", slice(param, k, shape)},
                                       {"grads", slice(gradient, k, shape).reshaped(row)}};
    if (buffer != nullptr) inputs.push_back({"momentum_buffer", slice(*buffer, k, shape)});
    for (const NamedTensor& out : compute_golden(find_operator(op), inputs, attributes, Level::report)) {
      const std::vector<double> values = out.tensor.values();
      made[out.name].insert(made[out.name].end(), values.begin(), values.end());
    }
  }
  std::vector<NamedTensor> all;
  for (const auto& [name, values] : made)
    all.push_back({name, Tensor::from_values(DType::float32, whole, values)});
  return all;
}

void record_matrices(MemoryDump& dump, const std::string& op, const Attributes& attributes) {
  const std::string state = op == "muon" ? "momentum_1" : "momentum_buffer_1";
  std::map<std::string, Tensor> params, buffers;
  for (std::int64_t step = 0; step < 3; ++step) {
    std::uint64_t seed = 100 * static_cast<std::uint64_t>(step) + 1;
    for (const auto& [name, shape] : matrices()) {
      const auto n = element_count(shape);
      if (step == 0)
        params[name] = Tensor::from_values(DType::float32, shape, Random(seed + 50).normals(n, 0.05));
      const Tensor gradient = Tensor::from_values(DType::float32, shape, Random(seed++).normals(n, 0.01));
      dump.add({step, -1, Phase::forward, name, "param", "weight", 0}, params[name]);
      dump.add({step, -1, Phase::backward, name, "grad", "weight", 0}, gradient);
      const auto made = step_of(op, attributes, params[name], gradient, step == 0 ? nullptr : &buffers[name]);
      params[name] = output_named(made, "param_1");
      dump.add({step, -1, Phase::optimizer, name, "param", "weight", 0}, params[name]);
      const Tensor* buffer = find_tensor(made, state);
      if (buffer == nullptr) continue;
      buffers[name] = *buffer;
      dump.add({step, -1, Phase::optimizer, name, "state", "weight.momentum_buffer", 0}, *buffer);
    }
  }
}

struct Planted {
  Attributes right, wrong;
  Diagnosis expected;
};

void expect_cause(const std::string& op, const Planted& p) {
  MemoryDump actual{"actual"}, reference{"reference"};
  record_matrices(actual, op, p.wrong);
  record_matrices(reference, op, p.right);
  const Report report = diff_steps(actual, reference);
  const std::vector<Diagnosis> found = diagnoses_of(report);
  ASSERT_FALSE(found.empty()) << op;
  EXPECT_TRUE(agrees(found.front(), p.expected))
      << name(found.front().cause) << ": " << sentence(found.front());
  // An orthogonal matrix hardly tells a momentum at the first step: later ones may be no failure of a rule.
  if (op == "muon") return;
  EXPECT_THAT(roots_of(report), testing::SizeIs(1));
}

// With a scale_factor the learning rate shows only times it.
Attributes moonlight(const AttributeEntry& change = {"lr", 0.02}) {
  Attributes a = {{"lr", 0.02},
                  {"weight_decay", 0.1},
                  {"momentum", 0.95},
                  {"dampening", 0.},
                  {"scale", "sqrt_max_rows_cols"}};
  a.set(change.name, change.value);
  return a;
}

TEST(OptimizerKinds, MuonIsNamedByItsAttributes) {
  expect_cause("muon", {moonlight(),
                        moonlight({"lr", 0.03}),
                        {Cause::learning_rate, {.value = 0.03, .reference_value = 0.02}}});
  expect_cause(
      "muon",
      {moonlight(), moonlight({"momentum", 0.9}), {Cause::betas, {.value = 0.9, .reference_value = 0.95}}});
  expect_cause("muon", {moonlight(),
                        moonlight({"weight_decay", 0.}),
                        {Cause::weight_decay, {.value = 0, .reference_value = 0.1}}});
  expect_cause("muon",
               {moonlight(), moonlight({"nesterov", false}), {Cause::attribute, {.attribute = "nesterov"}}});
  expect_cause("muon",
               {moonlight(), moonlight({"ns_steps", 3}), {Cause::attribute, {.attribute = "ns_steps"}}});
  expect_cause("muon", {moonlight(),
                        moonlight({"scale", "sqrt_max_1_rows_over_cols"}),
                        {Cause::attribute, {.attribute = "scale"}}});
}

TEST(OptimizerKinds, SgdIsNamedByItsAttributes) {
  const Attributes right = {{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.01}, {"nesterov", true}};
  const auto with = [&](const AttributeEntry& change) {
    Attributes a = right;
    a.set(change.name, change.value);
    return a;
  };
  expect_cause("sgd",
               {right, with({"lr", 0.07}), {Cause::learning_rate, {.value = 0.07, .reference_value = 0.1}}});
  // Of the first step, which has no buffer, a momentum that looks ahead is a part of the rate.
  expect_cause("sgd", {{{"lr", 0.1}, {"momentum", 0.9}},
                       {{"lr", 0.1}, {"momentum", 0.8}},
                       {Cause::betas, {.value = 0.8, .reference_value = 0.9}}});
  expect_cause("sgd",
               {right, with({"weight_decay", 0.}), {Cause::l2_decay, {.value = 0, .reference_value = 0.01}}});
  expect_cause("sgd", {right, with({"nesterov", false}), {Cause::attribute, {.attribute = "nesterov"}}});
  expect_cause("sgd", {right, with({"maximize", true}), {Cause::step_sign, {}}});
}

TEST(OptimizerKinds, TheSameAttributesAreNoFault) {
  for (const std::string op : {"muon", "sgd"}) {
    MemoryDump actual{"actual"}, reference{"reference"};
    const Attributes attributes = op == "muon" ? moonlight() : Attributes{{"lr", 0.1}, {"momentum", 0.9}};
    record_matrices(actual, op, attributes);
    record_matrices(reference, op, attributes);
    EXPECT_THAT(roots_of(diff_steps(actual, reference)), testing::IsEmpty()) << op;
  }
}

void record_biases(MemoryDump& dump, double rate, std::int64_t counted_from) {
  constexpr std::int64_t experts = 16;
  Tensor bias = Tensor::from_values(DType::float32, {experts}, Random(3).normals(experts, 0.01));
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::string gate = "model.layers.1.mlp.gate", arg = "e_score_correction_bias";
    dump.add({step, -1, Phase::forward, gate, "param", arg, 0}, bias);
    std::vector<double> sum(experts);
    for (std::int64_t m = 0; m < 2; ++m) {
      std::vector<std::int64_t> tokens;
      Random random(static_cast<std::uint64_t>(10 * step + m + 1));
      for (std::int64_t e = 0; e < experts; ++e) {
        tokens.push_back(static_cast<std::int64_t>(100 * random.uniform()));
        sum[static_cast<std::size_t>(e)] += m >= counted_from ? static_cast<double>(tokens.back()) : 0;
      }
      dump.add({step, m, Phase::forward, "model.layers.1.mlp", "output", "tokens_per_expert", 0},
               Tensor::from_indices({experts}, tokens));
    }
    const std::vector<NamedTensor> inputs = {
        {"expert_bias", bias}, {"tokens_per_expert", Tensor({experts}, std::span<const double>(sum))}};
    bias = output_named(
        compute_golden(find_operator("expert_bias_update"), inputs, {{"rate", rate}}, Level::report),
        "updated_bias");
    dump.add({step, -1, Phase::optimizer, gate, "param", arg, 0}, bias);
  }
}

Report diff_biases(double rate, std::int64_t counted_from = 0) {
  MemoryDump actual{"actual"}, reference{"reference"};
  record_biases(actual, rate, counted_from);
  record_biases(reference, 1e-3, 0);
  return diff_steps(actual, reference);
}

TEST(OptimizerKinds, TheBiasOfARouter) {
  const auto expect = [](const Report& report, const Diagnosis& expected) {
    const std::vector<Diagnosis> found = diagnoses_of(report);
    ASSERT_FALSE(found.empty());
    EXPECT_TRUE(agrees(found.front(), expected)) << sentence(found.front());
  };
  EXPECT_THAT(diagnoses_of(diff_biases(1e-3)), testing::IsEmpty());
  expect(diff_biases(3e-3), {Cause::learning_rate, {.value = 3e-3, .reference_value = 1e-3}});
  expect(diff_biases(-1e-3), {Cause::step_sign, {}});
  expect(diff_biases(0), {Cause::not_updated, {}});
}

// Without a recorded norm the coefficient tells which was used.
TEST(OptimizerKinds, ANormThatWasNotRecordedIsNamedByItsReason) {
  using Squares = std::map<std::string, double>;
  const auto expect = [](const std::function<double(const Squares&)>& norm, const std::string& text) {
    for (const Recipe recipe : recipes) {
      MemoryDump actual{"actual"}, reference{"reference"};
      record_steps(actual, with([&](OptimizerUnderTest& o) {
                     o.clip = [=](const std::string&, const Squares& s) { return 1 / (norm(s) + 1e-6); };
                   }),
                   recipe);
      record_steps(reference, {}, recipe);
      for (MemoryDump* dump : {&actual, &reference}) {
        for (Record& r : dump->records) {
          if (r.id.arg == "grad_norm") r.id.phase = Phase::none;  // a number of no step
        }
      }
      const std::vector<Diagnosis> found = diagnoses_of(diff_steps(actual, reference));
      ASSERT_FALSE(found.empty()) << text;
      EXPECT_EQ(name(found.front().cause), name(Cause::norm)) << sentence(found.front());
      EXPECT_THAT(sentence(found.front()), testing::HasSubstr(text)) << static_cast<int>(recipe);
    }
  };
  expect([](const Squares& s) { return total(s); }, "it is the square of the norm");
  expect(
      [](const Squares& s) {
        double sum = total(s);
        for (const auto& [name, square] : s) sum -= is_expert(name) ? square : 0;
        return std::sqrt(sum);
      },
      "of the dense parameters only");
  expect([](const Squares& s) { return std::sqrt(total(s) + s.at("model.embed_tokens")); },
         "model.embed_tokens.weight counted 2 times");
}

}  // namespace
}  // namespace assay::optimizer_kinds_test
