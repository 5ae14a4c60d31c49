// Whether a step depends on how samples are grouped into micro-batches.
#include "assay/align/step/loss_shares.h"

#include "expected.h"

namespace assay::align::loss_shares_test {
namespace {

using Gradients = std::map<std::string, std::vector<double>>;

// Rows of `batch`, [tokens, sequences], of the sequences [first, first + count).
Tensor columns(const Tensor& whole, const Batch& of, std::int64_t first, std::int64_t count) {
  const std::vector<std::int64_t> all = whole.indices();
  std::vector<std::int64_t> own;
  for (std::int64_t l = 0; l < of.length; ++l) {
    const auto row = all.begin() + l * of.sequences + first;
    own.insert(own.end(), row, row + count);
  }
  return Tensor::from_indices({of.length * count}, own);
}

std::int64_t valid(const Tensor& targets) {
  const std::vector<std::int64_t> all = targets.indices();
  return targets.size() - std::ranges::count(all, no_target);
}

// The gradients of all sequences of the batch, `each` of them in a micro-batch.
Gradients gradients(const Model& model, const Batch& all, std::int64_t each, LossAverage average) {
  const std::int64_t micro_batches = all.sequences / each;
  const auto indices = [&](const std::string& name, std::int64_t k) {
    return columns(initial_indices(name, all, model.vocabulary), all, k * each, each);
  };
  std::vector<std::int64_t> targets;
  for (std::int64_t k = 0; k < micro_batches; ++k) targets.push_back(valid(indices("targets", k)));
  const Batch batch = {each, all.length};
  const LossShares shares(average, batch.tokens(), targets);
  Gradients sums;
  for (std::int64_t k = 0; k < micro_batches; ++k) {
    const auto source = [&](const std::string& name) {
      constexpr std::string_view count = "valid_";
      if (!name.starts_with(count)) return indices(name, k);
      return Tensor::from_indices({}, std::vector{valid(indices(name.substr(count.size()), k))});
    };
    run_ranks(1, [&](Communicator& alone) {
      Tape tape(
          Ranks(alone, Mesh({}, 0), arithmetic(Precision::fp64)),
          [](const Machine::NamedParameter& p) { return initial_parameter(p.name, p.whole); }, source);
      std::vector<Loss> losses = forward(tape, model, batch, whole(model)).losses;
      for (Loss& loss : losses) loss.weight *= shares.of(loss, k);
      go_back(tape, losses);
      for (const Machine::NamedParameter& p : tape.parameters()) {
        const std::optional<Tensor> gradient = tape.gradient(p.value);
        if (!gradient) continue;
        const std::vector<double> more = gradient->values();
        std::vector<double>& sum = sums[p.name];
        sum.resize(more.size());
        for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
      }
    });
  }
  return sums;
}

double farthest(const Gradients& a, const Gradients& b) {
  double worst = 0;
  for (const auto& [name, values] : a) {
    for (std::size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::abs(values[i] - b.at(name)[i]));
  }
  return worst;
}

// Every prompt has a token at least, so that multi-token prediction has as many targets as the main loss.
constexpr Batch ragged = {4, 16, 1};

TEST(LossShares, OverTokensTheGroupingOfSamplesDoesNotMatter) {
  const Model model = load_model("telechat3-105b-tiny");
  const Gradients together = gradients(model, ragged, 4, LossAverage::tokens);
  for (const std::int64_t each : {1, 2})
    EXPECT_LE(farthest(gradients(model, ragged, each, LossAverage::tokens), together), 1e-12);
}

TEST(LossShares, OverMicroBatchesItDoes) {
  const Model model = load_model("telechat3-105b-tiny");
  EXPECT_GT(farthest(gradients(model, ragged, 1, LossAverage::micro_batches),
                     gradients(model, ragged, 4, LossAverage::micro_batches)),
            1e-3);
}

TEST(LossShares, AMicroBatchWithoutTargetsHasTheLossZero) {
  const Model model = load_model("qwen3-moe-tiny");
  run_ranks(1, [&](Communicator& alone) {
    Tape tape(
        Ranks(alone, Mesh({}, 0), arithmetic(Precision::fp64)),
        [](const Machine::NamedParameter& p) { return initial_parameter(p.name, p.whole); },
        [](const std::string& name) {
          if (name == "valid_targets") return Tensor::from_indices({}, std::vector<std::int64_t>{0});
          return Tensor::from_indices({3}, std::vector<std::int64_t>(3, name == "targets" ? no_target : 1));
        });
    const std::vector<Loss> losses = forward(tape, model, {1, 3}, whole(model)).losses;
    EXPECT_EQ(tape.tensor(losses.front().value).value(0), 0);
    EXPECT_EQ(LossShares(LossAverage::tokens, 3, {0}).of(losses.front(), 0), 0);
  });
}

TEST(InitialIndices, APromptHasNoTargetsAtAnyDepth) {
  const Batch of = {3, 8, 0.5};
  const std::vector<std::int64_t> plain = initial_indices("targets", {3, 8}, 64, 5).indices(),
                                  targets = initial_indices("targets", of, 64, 5).indices(),
                                  further = initial_indices("targets_1", of, 64, 5).indices();
  std::vector<std::int64_t> prompts;
  for (std::size_t s = 0; s < 3; ++s) {
    std::int64_t length = 0;
    while (targets[static_cast<std::size_t>(length) * 3 + s] == no_target) ++length;
    prompts.push_back(length);
    EXPECT_LE(length, 4);
  }
  EXPECT_NE(prompts, std::vector<std::int64_t>(3, prompts.front()));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const bool masked = static_cast<std::int64_t>(i / 3) < prompts[i % 3];
    EXPECT_EQ(targets[i], masked ? no_target : plain[i]);
    const bool known = i + 3 < targets.size();
    EXPECT_EQ(further[i], known ? targets[i + 3] : no_target);
  }
}

}  // namespace
}  // namespace assay::align::loss_shares_test
