// In exact arithmetic every strategy that docs/semantics.md E calls X0 or X1, and every pair of them, gives
// the bits of a single device. ASSAY_SEEDS: of how many seeds; without it one seed, and some of the pairs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "assay/golden/error.h"
#include "strategy_run.h"

namespace assay::align::exact_test {
namespace {

const std::vector<std::string> strategies = {
    "dp=2",
    "dp=2,zero=1",
    "dp=2,zero=2",
    "dp=2,zero=3",
    "tp=2",
    "tp=2,sp=1",
    "cp=2,context=ulysses",
    "pp=2",
    "pp=2,vpp=2,schedule=interleaved",
    "pp=2,schedule=zero-bubble",
    "pp=2,schedule=dualpipe",
    "dp=2,ep=2",
    "dp=2,ep=2,dispatch=allgather",
    "dp=4,ep=4,dispatch=hierarchical,node=2",
    "dp=2,etp=2",
    "dp=2,ep=2,placement=dynamic",
    "recompute=full",
    "recompute=mla",
    "recompute=permute",
    "recompute=activation",
    "swap=1",
};

constexpr Batch batch = {2, 8};

using Keys = std::map<std::string, std::string>;

Keys keys_of(const std::string& strategy) {
  Keys keys;
  for (std::size_t at = 0; at < strategy.size();) {
    const std::size_t end = std::min(strategy.find(',', at), strategy.size());
    const std::string piece = strategy.substr(at, end - at);
    const std::size_t equals = piece.find('=');
    keys[piece.substr(0, equals)] = piece.substr(equals + 1);
    at = end + 1;
  }
  return keys;
}

// Both at once; nothing if they contradict each other. Of sizes of one axis the larger one.
std::optional<std::string> both(const std::string& a, const std::string& b) {
  Keys keys = keys_of(a);
  for (const auto& [key, value] : keys_of(b)) {
    const auto [known, is_new] = keys.try_emplace(key, value);
    if (is_new || known->second == value) continue;
    if (key != "dp" && key != "ep") return std::nullopt;
    known->second = std::max(known->second, value);
  }
  std::string text;
  for (const auto& [key, value] : keys) text += (text.empty() ? "" : ",") + key + "=" + value;
  return text;
}

std::set<std::string> all_pairs() {
  std::set<std::string> pairs;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (const auto pair = both(strategies[i], strategies[j])) pairs.insert(*pair);
    }
  }
  return pairs;
}

bool is_possible(const Model& model, StepSettings settings, const std::string& strategy) {
  settings.parallel = parse_parallel(strategy);
  try {
    check(model, settings);
    return true;
  } catch (const Error&) {
    return false;
  }
}

const char* const asked_seeds = std::getenv("ASSAY_SEEDS");

// With 8, DualPipe goes with more of the others.
const std::int64_t micro_batches = asked_seeds == nullptr ? 4 : 8;

std::int64_t seeds() {
  return asked_seeds == nullptr ? 1 : std::atoll(asked_seeds);
}

// Without ASSAY_SEEDS every twentieth.
std::vector<std::string> pairs() {
  std::vector<std::string> some;
  std::size_t number = 0;
  for (const std::string& pair : all_pairs()) {
    if (asked_seeds != nullptr || number++ % 20 == 0) some.push_back(pair);
  }
  return some;
}

class ExactArithmetic : public testing::TestWithParam<const char*> {
 protected:
  const Model model_ = load_model(std::string(ASSAY_TEST_DATA "/models/") + GetParam() + ".toml");

  template <class Strategies>
  int expect_bits(const Strategies& all) {
    int run = 0;
    for (std::int64_t seed = 0; seed < seeds(); ++seed) {
      const StepSettings settings = {
          .batch = batch, .micro_batches = micro_batches, .precision = Precision::exact, .seed = seed};
      const StrategyRun single = run_strategy(model_, settings, "");
      for (const std::string& strategy : all) {
        if (!is_possible(model_, settings, strategy)) continue;
        SCOPED_TRACE(strategy + " of seed " + std::to_string(seed));
        expect_bits_of_single_device(run_strategy(model_, settings, strategy), single);
        ++run;
      }
    }
    return run;
  }
};

TEST_P(ExactArithmetic, EveryStrategyGivesTheBitsOfASingleDevice) {
  EXPECT_EQ(expect_bits(strategies), seeds() * static_cast<int>(strategies.size()));
}

TEST_P(ExactArithmetic, EveryPairOfStrategiesGivesTheBitsOfASingleDevice) {
  const int run = expect_bits(pairs());
  std::printf("%d pairs\n", run);
  EXPECT_GE(run, (asked_seeds == nullptr ? 5 : 130) * seeds());
}

// Extents of 1 do not say what is cut.
TEST_P(ExactArithmetic, RanksOfOneTokenToo) {
  const StepSettings settings = {.batch = {1, 2}, .micro_batches = 2, .precision = Precision::exact};
  const StrategyRun single = run_strategy(model_, settings, "");
  for (const char* strategy : {"tp=2,sp=1", "cp=2,context=ulysses", "tp=2,dp=2,ep=4"}) {
    SCOPED_TRACE(strategy);
    expect_bits_of_single_device(run_strategy(model_, settings, strategy), single);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExactArithmetic, testing::Values("latent", "grouped"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace assay::align::exact_test
