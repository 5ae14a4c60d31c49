// Orders of work in a pipeline (docs/semantics.md D8 to D10).
#include "assay/align/strategies/pipeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "assay/golden/error.h"

namespace assay::align::pipeline_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Kind = Action::Kind;

Model of_layers(std::int64_t layers) {
  Model model;
  model.layers = layers;
  return model;
}

// "F0.1": forward of micro-batch 0 in chunk 1 of the rank; weights are left out.
std::string text(const Pipeline& pipeline, std::int64_t rank, std::int64_t pp) {
  std::string all;
  for (const Action& a : pipeline.actions(rank)) {
    if (a.kind == Kind::weights) continue;
    all += fmt::format("{}{}{}.{}", all.empty() ? "" : " ", a.kind == Kind::forward ? 'F' : 'B',
                       a.micro_batch, a.stage / pp);
  }
  return all;
}

TEST(Pipeline, InterleavedIsMegatronsTable) {
  const Pipeline pipeline(parse_parallel("pp=2,vpp=2,schedule=interleaved"), of_layers(4), 4);
  EXPECT_EQ(text(pipeline, 0, 2),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text(pipeline, 1, 2),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(Pipeline, OneForwardOneBackwardKeepsAsManyAsThereAreStagesBehind) {
  const Pipeline pipeline(parse_parallel("pp=4"), of_layers(4), 4);
  EXPECT_EQ(text(pipeline, 1, 4), "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0");
  EXPECT_EQ(text(pipeline, 3, 4), "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0 F3.0 B3.0");
}

TEST(Pipeline, ZeroBubbleDefersWeightsByTheRanksBefore) {
  const Pipeline pipeline(parse_parallel("pp=4,schedule=zero-bubble"), of_layers(4), 6);
  std::int64_t waiting = 0, most = 0;
  for (const Action& a : pipeline.actions(2)) {
    waiting += a.kind == Kind::backward ? 1 : a.kind == Kind::weights ? -1 : 0;
    most = std::max(most, waiting);
  }
  EXPECT_EQ(most, 3);  // two, and the one that has just been
  EXPECT_EQ(waiting, 0);
}

struct Case {
  const char* parallel;
  std::int64_t micro_batches;
};
class Schedules : public testing::TestWithParam<Case> {};

// Every stage works on every micro-batch once, forward, backward, weights; nobody waits for ever; and weights
// of a stage are added in the order of the micro-batches, as on a single device.
TEST_P(Schedules, AreCompleteAndEndAndKeepTheOrderOfGradients) {
  const Parallel parallel = parse_parallel(GetParam().parallel);
  const Pipeline pipeline(parallel, of_layers(parallel.pp * parallel.vpp), GetParam().micro_batches);
  const auto stages = static_cast<std::int64_t>(pipeline.stages().size());
  std::vector<std::vector<Action>> left;
  for (std::int64_t rank = 0; rank < parallel.pp; ++rank) left.push_back(pipeline.actions(rank));
  using Work = std::tuple<Kind, std::int64_t, std::int64_t>;
  std::set<Work> done;
  std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> last;  // micro-batch, of a rank and stage
  const auto can = [&](const Action& a) {
    if (a.kind == Kind::weights) return done.contains({Kind::backward, a.micro_batch, a.stage});
    if (a.kind == Kind::forward)
      return a.stage == 0 || done.contains({Kind::forward, a.micro_batch, a.stage - 1});
    return done.contains({Kind::forward, a.micro_batch, a.stage}) &&
           (a.stage == stages - 1 || done.contains({Kind::backward, a.micro_batch, a.stage + 1}));
  };
  std::vector<std::size_t> at(left.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < left.size(); ++rank) {
      for (; at[rank] < left[rank].size() && can(left[rank][at[rank]]); ++at[rank], moved = true) {
        const Action& a = left[rank][at[rank]];
        EXPECT_EQ(pipeline.rank_of(a.stage, a.micro_batch), static_cast<std::int64_t>(rank));
        EXPECT_TRUE(done.insert({a.kind, a.micro_batch, a.stage}).second);
        if (a.kind != Kind::weights) continue;
        const auto [known, first] = last.try_emplace({rank, a.stage}, a.micro_batch);
        EXPECT_TRUE(first || known->second < a.micro_batch);
        known->second = a.micro_batch;
      }
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(done.size()), 3 * stages * GetParam().micro_batches);
}

INSTANTIATE_TEST_SUITE_P(Facts, Schedules,
                         testing::Values(Case{"", 3}, Case{"pp=2", 1}, Case{"pp=4", 2}, Case{"pp=4", 12},
                                         Case{"pp=2,vpp=3,schedule=interleaved", 2},
                                         Case{"pp=4,vpp=2,schedule=interleaved", 8},
                                         Case{"pp=3,vpp=3,schedule=interleaved", 9},
                                         Case{"pp=4,schedule=zero-bubble", 7},
                                         Case{"pp=2,schedule=dualpipe", 4}, Case{"pp=4,schedule=dualpipe", 8},
                                         Case{"pp=8,schedule=dualpipe", 20}));

TEST(Pipeline, StagesMayBeUneven) {
  const Pipeline pipeline(parse_parallel("pp=3,stages=2+2+1"), of_layers(5), 3);
  ASSERT_EQ(pipeline.stages().size(), 3U);
  EXPECT_EQ(pipeline.stages()[2].first, 4);
  EXPECT_TRUE(pipeline.stages()[2].finishes);
  EXPECT_FALSE(pipeline.stages()[1].embeds);
}

TEST(Pipeline, WhatDoesNotFitIsAnErrorThatSaysWhy) {
  const auto make = [](const char* parallel, std::int64_t layers, std::int64_t micro_batches) {
    return [=] { Pipeline(parse_parallel(parallel), of_layers(layers), micro_batches); };
  };
  EXPECT_THAT(make("pp=4", 3, 4), ThrowsMessage<Error>(HasSubstr("3 layers do not give 4 stages")));
  EXPECT_THAT(make("pp=2,stages=1+1", 3, 4),
              ThrowsMessage<Error>(HasSubstr("2 layers together; expected 2")));
  EXPECT_THAT(make("pp=2,vpp=2", 4, 4), ThrowsMessage<Error>(HasSubstr("schedule=interleaved")));
  EXPECT_THAT(make("pp=2,vpp=2,schedule=interleaved", 4, 3),
              ThrowsMessage<Error>(HasSubstr("groups of pp = 2")));
  EXPECT_THAT(make("pp=2,schedule=dualpipe", 4, 2), ThrowsMessage<Error>(HasSubstr("at least 2 pp")));
}

}  // namespace
}  // namespace assay::align::pipeline_test
