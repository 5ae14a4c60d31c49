#include <cmath>

#include "merged_dump.h"

// Ranks that hold the same tensor, or the addends of its sum.
namespace assay::merge_replicas_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Merge, EqualReplicas) {
  Fake dump({{"tp"}, {2}});
  dump.add(1, {replicate}, {2}, {2}, {1, NAN});
  dump.add(0, {replicate}, {2}, {2}, {1, NAN});
  const Merged merged = dump.merged();
  EXPECT_TRUE(merged.replicas.empty());
  EXPECT_FALSE(merged.sum_of_replicas);
  EXPECT_EQ(merged.tensor.whole().bytes().data(), dump.read(1).bytes().data());
}

TEST(Merge, DifferentReplicasAreAFinding) {
  Fake dump({{"tp"}, {2}});
  dump.add(0, {replicate}, {3}, {3}, {1, 2, 3});
  dump.add(1, {replicate}, {3}, {3}, {1, 2.5, 5});
  const Merged merged = dump.merged();
  EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(1, 2, 3));
  ASSERT_EQ(merged.replicas.size(), 1U);
  const ReplicaMismatch& mismatch = merged.replicas[0];
  EXPECT_EQ(mismatch.mesh_dim, "tp");
  EXPECT_EQ(mismatch.rank_a, 0);
  EXPECT_EQ(mismatch.rank_b, 1);
  EXPECT_EQ(mismatch.different, 2);
  EXPECT_EQ(mismatch.worst, 2);
  EXPECT_EQ(mismatch.value_a, 3);
  EXPECT_EQ(mismatch.value_b, 5);
  EXPECT_THAT(merged.sum_of_replicas->whole().values(), ElementsAre(2, 4.5, 8));
}

TEST(Merge, SignedZerosAndNaNsAreComparedAsBits) {
  Fake dump({{"tp"}, {2}});
  dump.add(0, {replicate}, {2}, {2}, {0.0, NAN});
  dump.add(1, {replicate}, {2}, {2}, {-0.0, 1});
  const Merged merged = dump.merged();
  ASSERT_EQ(merged.replicas.size(), 1U);
  EXPECT_EQ(merged.replicas[0].different, 2);
  EXPECT_EQ(merged.replicas[0].worst, 1);
}

// dp 2 x tp 2, an all-reduce over tp forgotten: the ranks of one tp line differ, those of one dp line agree.
// The sum must not count each dp replica once more.
TEST(Merge, OnlyTheDisagreeingDimensionIsBlamedAndSummed) {
  Fake dump({{"dp", "tp"}, {2, 2}});
  for (int rank = 0; rank < 4; ++rank)
    dump.add(rank, {replicate, replicate}, {1}, {1}, {rank % 2 == 0 ? 1.0 : 10.0});
  const Merged merged = dump.merged();
  ASSERT_EQ(merged.replicas.size(), 2U);
  for (const ReplicaMismatch& mismatch : merged.replicas) EXPECT_EQ(mismatch.mesh_dim, "tp");
  EXPECT_EQ(merged.replicas[1].rank_a, 2);
  EXPECT_THAT(merged.sum_of_replicas->whole().values(), ElementsAre(11));
}

TEST(Merge, RanksWithoutAMeshStillDisagree) {
  Fake dump({{}, {}});
  dump.world_size = 2;
  for (int rank = 0; rank < 2; ++rank) {
    dump.add(0, {}, {1}, {1}, {rank + 1.0});
    dump.records.back().rank = rank;
    dump.records.back().mesh_coordinate.clear();
  }
  const Merged merged = dump.merged();
  ASSERT_EQ(merged.replicas.size(), 1U);
  EXPECT_EQ(merged.replicas[0].mesh_dim, "");
  EXPECT_THAT(merged.sum_of_replicas->whole().values(), ElementsAre(3));
}

// 2^24 + 1 + 1: summed one by one in float32 each 1 is lost to the tie; exactly, and rounded once, it is 2^24
// + 2.
TEST(Merge, PartialsAreSummedExactly) {
  Fake dump({{"tp"}, {3}});
  dump.add(0, {partial}, {2}, {2}, {16777216, 1e30});
  dump.add(1, {partial}, {2}, {2}, {1, 1});
  dump.add(2, {partial}, {2}, {2}, {1, -1e30});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(16777218, 1));
}

TEST(Merge, IntegerPartials) {
  Fake dump({{"tp"}, {2}});
  dump.add(0, {partial}, {3}, {3}, {100, -100, 5}, {}, DType::int8);
  dump.add(1, {partial}, {3}, {3}, {27, -28, -7}, {}, DType::int8);
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(127, -128, -2));
}

// Every placement at once, in both orders of the mesh: shards of partial sums with copies.
TEST(Merge, ShardsOfPartialsWithReplicas) {
  for (const bool reversed : {false, true}) {
    Fake dump({{"a", "b", "c"}, {2, 2, 2}});
    for (int rank = 0; rank < 8; ++rank) {
      const Shape at = unravel(rank, {2, 2, 2});
      std::vector<Placement> placements = {replicate, partial, shard(0)};
      if (reversed) placements = {shard(0), partial, replicate};
      const std::int64_t piece = reversed ? at[0] : at[2];
      dump.add(rank, placements, {4}, {2},
               {10.0 * static_cast<double>(piece) + static_cast<double>(at[1]), 1});
    }
    const Merged merged = dump.merged();
    EXPECT_TRUE(merged.replicas.empty());
    EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(1, 2, 21, 2));
  }
}

// A copy of one partial sum that differs is a finding; its rank does not join the sum.
TEST(Merge, DifferentReplicasOfAPartial) {
  Fake dump({{"dp", "tp"}, {2, 2}});
  for (int rank = 0; rank < 4; ++rank)
    dump.add(rank, {replicate, partial}, {1}, {1}, {rank == 3 ? 9.0 : 1.0});
  const Merged merged = dump.merged();
  EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(2));
  ASSERT_EQ(merged.replicas.size(), 1U);
  EXPECT_EQ(merged.replicas[0].mesh_dim, "dp");
  EXPECT_EQ(merged.replicas[0].rank_a, 1);
  EXPECT_EQ(merged.replicas[0].rank_b, 3);
}

// A sum without one of its addends is another number, even where a single rank holds all the elements.
TEST(Merge, EveryAddendMustBeThere) {
  Fake alone({{"tp"}, {2}});
  alone.add(1, {partial}, {1}, {1}, {1});
  expect_error(alone, "the addend of tp=0 is missing");
  Fake pair({{"dp", "tp"}, {2, 2}});
  for (const int rank : {0, 1, 2}) pair.add(rank, {partial, partial}, {1}, {1}, {1});
  expect_error(pair, "the addend of dp=1, tp=1 is missing");
  // Of the second shard; the rank is known from another tensor.
  Fake shards({{"dp", "tp"}, {2, 2}});
  for (const int rank : {0, 1, 2}) shards.add(rank, {partial, shard(0)}, {2}, {1}, {1});
  shards.add(3, {replicate, replicate}, {1}, {1}, {1});
  shards.records.back().id.module = "other";
  const auto tensors = logical_tensors(shards);
  EXPECT_THAT([&] { merge(shards, tensors[0]); },
              testing::ThrowsMessage<Error>(HasSubstr("the addend of dp=1, tp=1 (rank 3) is missing")));
}

// An expert lives on one coordinate of a mesh dimension that its gradient is no sum over.
TEST(Merge, AddendsOnSomeRanksOnly) {
  Fake dump({{"dp", "ep"}, {2, 2}});
  dump.add(1, {partial, replicate}, {1}, {1}, {1});
  dump.add(3, {partial, replicate}, {1}, {1}, {2});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(3));
}

TEST(Merge, SumsOfIntegersDoNotWrap) {
  Fake dump({{"dp"}, {2}});
  for (int rank = 0; rank < 2; ++rank) dump.add(rank, {partial}, {2}, {2}, {1, 2147483647}, {}, DType::int32);
  const Merged merged = dump.merged();
  try {
    merged.tensor.whole();
    ADD_FAILURE() << "summed";
  } catch (const Error& problem) {
    EXPECT_THAT(problem.what(), HasSubstr("the sum of 2 parts at element 1 does not fit int32"));
  }
  Fake flags({{"dp"}, {2}});
  for (int rank = 0; rank < 2; ++rank) flags.add(rank, {partial}, {1}, {1}, {1}, {}, DType::boolean);
  EXPECT_THROW(flags.merged().tensor.whole(), Error);
}

}  // namespace
}  // namespace assay::merge_replicas_test
