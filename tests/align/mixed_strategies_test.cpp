// Strategies in fp32 and bf16 against the single device: bits where nothing is added in another order, else
// what their sums may be off.
#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/step/training_step.h"
#include "assay/golden/error.h"

namespace assay::align::mixed_strategies_test {
namespace {

struct Outcome {
  StepResult step;
  std::vector<std::map<std::string, ReducedGradient>> gradients;  ///< of each rank, its pieces
  std::vector<SummingCollective> collectives;                     ///< of rank 0
  Plan plan;
};

Outcome run(const Model& model, Precision precision, const std::string& parallel,
            RoundSum round = RoundSum::each) {
  const StepSettings settings = {.batch = {2, 16},
                                 .micro_batches = 4,
                                 .precision = precision,
                                 .round_sum = round,
                                 .loss_scaling = {.initial = 0x1p10},
                                 .bound_sums = true,
                                 .parallel = parse_parallel(parallel)};
  const auto ranks = static_cast<std::size_t>(settings.parallel.ranks());
  Outcome result;
  result.gradients.resize(ranks);
  std::mutex mutex;
  run_ranks(static_cast<int>(ranks), [&](Communicator& communicator) {
    TrainingStep replay(model, settings, communicator);
    const StepResult step = replay.step(nullptr);
    const std::lock_guard lock(mutex);
    result.gradients[static_cast<std::size_t>(communicator.rank())] = replay.reduced_gradients();
    if (communicator.rank() != 0) return;
    result.step = step;
    result.collectives = replay.summing_collectives();
    result.plan = replay.plan();
  });
  return result;
}

// Embeddings are looked up once: both ends of a pipeline add theirs up, as no single device does.
Model model() {
  Model m = load_model("telechat3-105b-tiny");
  m.losses.mtp_depth = 0;
  return m;
}

const Outcome& single(Precision precision) {
  static const std::map<Precision, Outcome> all = [] {
    std::map<Precision, Outcome> runs;
    for (const Precision p : {Precision::fp32, Precision::bf16}) runs[p] = run(model(), p, "");
    return runs;
  }();
  return all.at(precision);
}

// f(name, gradient, the same piece of the single device's gradient and of its sum |terms|)
template <class F>
void with_single(const Outcome& actual, const Parallel& parallel, const Outcome& expected, F f) {
  for (std::size_t r = 0; r < actual.gradients.size(); ++r) {
    const Mesh mesh(parallel, static_cast<int>(r));
    for (const auto& [name, gradient] : actual.gradients[r]) {
      ReducedGradient own = expected.gradients.front().at(name);
      for (const Sharding& s : actual.plan.at(name).shardings) {
        for (Tensor* t : {&own.value, &own.terms})
          *t = piece_of(*t, s.placed.dim, mesh.coordinate(s.axis), mesh.size(s.axis));
      }
      f(name, gradient, own);
    }
  }
}

using Case = std::tuple<Precision, const char*>;
std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", align::name(std::get<0>(info.param)), std::get<1>(info.param));
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

class SameBits : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Pipelines, SameBits,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values("pp=2", "pp=4", "pp=2,vpp=2,schedule=interleaved",
                                                          "pp=2,schedule=zero-bubble")),
                         name_of);

TEST_P(SameBits, AsTheSingleDevice) {
  const auto [precision, parallel] = GetParam();
  const Outcome actual = run(model(), precision, parallel);
  EXPECT_EQ(actual.step.loss, single(precision).step.loss);
  with_single(actual, parse_parallel(parallel), single(precision),
              [](const std::string& name, const ReducedGradient& own, const ReducedGradient& expected) {
                EXPECT_EQ(own.value.values(), expected.value.values()) << name;
              });
}

// Where each micro-batch gives the bits of the single device only the sums differ: both are within their
// bounds.
class WithinBounds : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, WithinBounds,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values("dp=2", "dp=2,zero=1", "dp=4,reduce=tree",
                                                          "dp=2,pp=2,reduce=ring")),
                         name_of);

TEST_P(WithinBounds, OfTheSumsOfBoth) {
  const auto [precision, parallel] = GetParam();
  const Outcome actual = run(model(), precision, parallel);
  EXPECT_EQ(actual.step.loss, single(precision).step.loss);
  bool differs = false;
  with_single(actual, parse_parallel(parallel), single(precision),
              [&](const std::string& name, const ReducedGradient& own, const ReducedGradient& expected) {
                EXPECT_EQ(own.error.n_wire, 0) << name;
                for (std::int64_t i = 0; i < own.value.size(); ++i) {
                  const double off = std::abs(own.value.value(i) - expected.value.value(i)),
                               allowed = own.bound(i) + expected.bound(i);
                  ASSERT_LE(off, allowed) << name << " at " << i;
                  differs |= off > 0;
                }
              });
  EXPECT_TRUE(differs);  // else nothing was added in another order
}

// Without experts where activations differ: a choice of others is no rounding.
Model comparable(const std::string& parallel) {
  Model m = model();
  if (parallel.find("ep=") == std::string::npos) m.dense_layers = m.layers;
  return m;
}

// Of the format that matmuls take.
double unit_of(Precision precision) {
  switch (precision) {
    case Precision::fp8:
      return unit_roundoff(DType::float8_e4m3fn);
    case Precision::fp16:
      return unit_roundoff(DType::float16);
    case Precision::bf16:
      return unit_roundoff(DType::bfloat16);
    default:
      return unit_roundoff(DType::float32);
  }
}

class Near : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Strategies, Near,
                         testing::Combine(testing::Values(Precision::fp32, Precision::bf16),
                                          testing::Values("tp=2", "tp=2,sp=1", "cp=2", "cp=2,context=ulysses",
                                                          "dp=2,ep=2", "tp=2,pp=2,dp=2")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Narrow, Near,
                         testing::Combine(testing::Values(Precision::fp16, Precision::fp8),
                                          testing::Values("tp=2,sp=1")),
                         name_of);

// What is rounded otherwise upstream has no bound: errors as of 8 roundings of everything, and of float32
// sums of some thousand terms, that add up at random.
TEST_P(Near, TheSingleDevice) {
  const auto [precision, parallel] = GetParam();
  const double allowed = 8 * unit_of(precision) + 64 * unit_roundoff(DType::float32);
  const Outcome expected = run(comparable(parallel), precision, ""),
                actual = run(comparable(parallel), precision, parallel);
  EXPECT_NEAR(actual.step.loss, expected.step.loss, allowed * expected.step.loss);
  EXPECT_NEAR(actual.step.grad_norm, expected.step.grad_norm, allowed * expected.step.grad_norm);
  with_single(actual, parse_parallel(parallel), expected,
              [&](const std::string& name, const ReducedGradient& own, const ReducedGradient& one) {
                double off = 0, all = 0;
                for (std::int64_t i = 0; i < own.value.size(); ++i) {
                  off += std::pow(own.value.value(i) - one.value.value(i), 2);
                  all += std::pow(one.value.value(i), 2);
                }
                EXPECT_LE(std::sqrt(off), allowed * std::sqrt(all)) << name;
              });
}

using testing::Contains;
using testing::Not;

// (module, backward, collective, dtype, additions, roundings on the wire)
using Row = std::tuple<std::string, bool, std::string, DType, std::int64_t, std::int64_t>;
std::vector<Row> rows(const Outcome& outcome) {
  std::vector<Row> all;
  for (const SummingCollective& c : outcome.collectives)
    all.emplace_back(c.module, c.backward, c.what, c.dtype, c.error.n_extra, c.error.n_wire);
  return all;
}

TEST(SummingCollectives, AreCountedWithTheirRoundings) {
  const std::string all_reduce = "all-reduce over tp";
  const std::vector<Row> bf16 = rows(run(model(), Precision::bf16, "tp=2")),
                         fp32 = rows(run(model(), Precision::fp32, "tp=2")),
                         once = rows(run(model(), Precision::bf16, "tp=2", RoundSum::once));
  const std::string attention = "model.layers.0.self_attn";
  EXPECT_THAT(bf16, Contains(Row(attention, false, all_reduce, DType::bfloat16, 1, 2)));
  EXPECT_THAT(bf16, Contains(Row(attention, true, all_reduce, DType::bfloat16, 1, 2)));
  EXPECT_THAT(bf16, Contains(Row("model.embed_tokens/vocabulary", false, all_reduce, DType::float32, 1, 0)));
  EXPECT_THAT(bf16,
              Not(Contains(Row("model.embed_tokens/vocabulary", true, all_reduce, DType::float32, 1, 0))));
  EXPECT_THAT(fp32, Contains(Row(attention, false, all_reduce, DType::float32, 1, 0)));
  EXPECT_THAT(once, Contains(Row(attention, false, all_reduce, DType::bfloat16, 1, 3)));
  EXPECT_TRUE(rows(single(Precision::bf16)).empty());
}

TEST(ReducedGradients, OfExactSumsHaveNoBound) {
  EXPECT_THAT([] { run(model(), Precision::exact, ""); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("the sums of exact are exact")));
}

TEST(ReducedGradients, CountTheAdditionsBehindEachOther) {
  const auto additions = [](const Outcome& outcome, const std::string& name) {
    return outcome.gradients.front().at(name).error.n_extra;
  };
  const Outcome data = run(model(), Precision::fp32, "dp=2,zero=2"),
                sequence = run(model(), Precision::fp32, "tp=2,sp=1");
  EXPECT_EQ(additions(single(Precision::fp32), "model.norm.weight"), 3);  // four micro-batches
  EXPECT_EQ(additions(data, "model.norm.weight"), 1 + 1);                 // two, on two ranks
  EXPECT_EQ(additions(sequence, "model.norm.weight"), 3 + 1);
  EXPECT_EQ(additions(sequence, "lm_head.weight"), 3);  // each rank has its own rows
}

}  // namespace
}  // namespace assay::align::mixed_strategies_test
