#include "assay/dumps/merge.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "assay/golden/error.h"

namespace assay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Placement replicate{Placement::Kind::replicate, 0}, partial{Placement::Kind::partial, 0};
constexpr Placement shard(int dim) {
  return {Placement::Kind::shard, dim};
}

/// A dump in memory. Ranks are the row-major numbers of the mesh.
class Fake : public Dump {
 public:
  explicit Fake(Mesh m) {
    mesh = std::move(m);
    world_size = static_cast<int>(element_count(mesh.shape));
  }
  void add(int rank, std::vector<Placement> placements, Shape global, Shape shape, std::vector<double> values,
           std::optional<Shape> offsets = {}, DType dtype = DType::float32) {
    Record record;
    record.id = {0, -1, Phase::backward, "layer", "grad", "weight", 0};
    record.rank = rank;
    record.dtype = dtype;
    record.shape = shape;
    record.global_shape = std::move(global);
    record.placements = std::move(placements);
    record.mesh_coordinate = unravel(rank, mesh.shape);
    record.offsets = std::move(offsets);
    records.push_back(std::move(record));
    tensors_.push_back(Tensor::from_values(dtype, std::move(shape), values));
  }
  Tensor read(std::size_t index) const override { return tensors_.at(index); }
  std::string location(std::size_t index) const override { return std::to_string(index); }
  Merged merged() const {
    const auto tensors = logical_tensors(*this);
    EXPECT_EQ(tensors.size(), 1U);
    return merge(*this, tensors[0]);
  }

 private:
  std::vector<Tensor> tensors_;
};

void expect_error(const Fake& dump, std::string_view part) {
  EXPECT_THAT([&] { dump.merged(); },
              testing::ThrowsMessage<Error>(testing::AllOf(HasSubstr(part), HasSubstr("layer grad weight"))));
}

TEST(Merge, ASingleRecordIsNotCopied) {
  Fake dump({{"tp"}, {1}});
  dump.add(0, {replicate}, {2}, {2}, {1, 2});
  EXPECT_EQ(dump.merged().tensor.whole().bytes().data(), dump.read(0).bytes().data());
}

TEST(Merge, EvenShards) {
  Fake dump({{"tp"}, {2}});
  dump.add(1, {shard(1)}, {2, 4}, {2, 2}, {3, 4, 7, 8});
  dump.add(0, {shard(1)}, {2, 4}, {2, 2}, {1, 2, 5, 6});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Merge, UnevenAndEmptyShards) {
  Fake dump({{"tp"}, {4}});
  dump.add(0, {shard(0)}, {5}, {2}, {1, 2});
  dump.add(1, {shard(0)}, {5}, {2}, {3, 4});
  dump.add(2, {shard(0)}, {5}, {1}, {5});
  dump.add(3, {shard(0)}, {5}, {0}, {});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4, 5));
}

TEST(Merge, MiddleDimension) {
  Fake dump({{"tp"}, {2}});
  dump.add(0, {shard(1)}, {2, 3, 2}, {2, 2, 2}, {0, 1, 2, 3, 6, 7, 8, 9});
  dump.add(1, {shard(1)}, {2, 3, 2}, {2, 1, 2}, {4, 5, 10, 11});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

// dp 2 x tp 2: rows over dp, columns over tp.
TEST(Merge, NestedShards) {
  Fake dump({{"dp", "tp"}, {2, 2}});
  for (int rank = 0; rank < 4; ++rank) dump.add(rank, {shard(0), shard(1)}, {2, 2}, {1, 1}, {rank + 1.0});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4));
}

TEST(Merge, OneDimensionOverTwoMeshDimensions) {
  Fake dump({{"dp", "tp"}, {2, 2}});
  dump.add(0, {shard(0), shard(0)}, {10}, {3}, {0, 1, 2});
  dump.add(1, {shard(0), shard(0)}, {10}, {2}, {3, 4});
  dump.add(2, {shard(0), shard(0)}, {10}, {3}, {5, 6, 7});
  dump.add(3, {shard(0), shard(0)}, {10}, {2}, {8, 9});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(Merge, OffsetsWhereTheCutIsNotEven) {
  Fake dump({{"tp"}, {2}});
  dump.add(0, {shard(0)}, {4}, {1}, {1}, Shape{0});
  dump.add(1, {shard(0)}, {4}, {3}, {2, 3, 4}, Shape{1});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4));
}

TEST(Merge, GapsAndOverlapsNameTheRanks) {
  Fake gap({{"tp"}, {2}});
  gap.add(0, {shard(0)}, {4}, {1}, {1}, Shape{0});
  gap.add(1, {shard(0)}, {4}, {2}, {3, 4}, Shape{2});
  expect_error(gap, "rank 0 [0:1], rank 1 [2:4]");
  Fake overlap({{"tp"}, {2}});
  overlap.add(0, {shard(0)}, {4}, {3}, {1, 2, 3}, Shape{0});
  overlap.add(1, {shard(0)}, {4}, {2}, {3, 4}, Shape{2});
  expect_error(overlap, "rank 0 holds [0:3] and rank 1 holds [2:4]: they overlap");
  Fake missing({{"tp"}, {2}});
  missing.add(1, {shard(0)}, {4}, {2}, {3, 4});
  expect_error(missing, "2 of 4 elements");
  // As many elements as there should be, but not the right ones.
  Fake both({{"tp"}, {3}});
  both.add(0, {shard(0)}, {2, 2}, {1, 2}, {1, 2}, Shape{0, 0});
  both.add(1, {shard(0)}, {2, 2}, {1, 1}, {3}, Shape{1, 0});
  both.add(2, {shard(0)}, {2, 2}, {1, 1}, {3}, Shape{0, 1});
  expect_error(both, "overlap");
}

TEST(Merge, ContradictionsAreErrors) {
  Fake dtype({{"tp"}, {2}});
  dtype.add(0, {replicate}, {1}, {1}, {1});
  dtype.add(1, {replicate}, {1}, {1}, {1}, {}, DType::bfloat16);
  expect_error(dtype, "bfloat16");
  Fake twice({{"tp"}, {2}});
  twice.add(0, {replicate}, {1}, {1}, {1});
  twice.add(0, {replicate}, {1}, {1}, {1});
  expect_error(twice, "twice");
  Fake shape({{"tp"}, {2}});
  shape.add(0, {shard(0)}, {4}, {3}, {1, 2, 3});
  expect_error(shape, "placements [Shard(dim=0)] put it at [0:2]");
  Fake placement({{"tp"}, {2}});
  placement.add(0, {replicate}, {1}, {1}, {1});
  placement.add(1, {partial}, {1}, {1}, {1});
  expect_error(placement, "placements differ");
}

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

TEST(Merge, PlacementsThatDoNotFitTheTensor) {
  Fake scalar({{"tp"}, {1}});
  scalar.add(0, {shard(0)}, {}, {}, {1});
  expect_error(scalar, "Shard(dim=0)");
  Fake wide({{"tp"}, {1}});
  wide.add(0, {shard(0)}, {4}, {1}, {1}, Shape{std::numeric_limits<std::int64_t>::max()});
  expect_error(wide, "[9223372036854775807:9223372036854775808]");
  Fake flat({{"tp"}, {1}});
  flat.add(0, {replicate}, {4}, {1}, {1}, Shape{});
  expect_error(flat, "put it at");
}

TEST(Merge, ATensorOfSomeRanksOnly) {
  Fake dump({{"pp", "tp"}, {2, 2}});
  dump.add(2, {replicate, shard(0)}, {2}, {1}, {5});
  dump.add(3, {replicate, shard(0)}, {2}, {1}, {6});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(5, 6));
}

TEST(Merge, Scalars) {
  Fake dump({{"tp"}, {2}});
  dump.add(0, {partial}, {}, {}, {0.5});
  dump.add(1, {partial}, {}, {}, {0.25});
  EXPECT_THAT(dump.merged().tensor.whole().values(), ElementsAre(0.75));
}

TEST(LogicalTensors, StandInExecutionOrder) {
  Fake dump({{"pp"}, {2}});
  for (const auto& [rank, seq, module] : std::vector<std::tuple<int, int, std::string>>{
           {0, 0, "first"}, {0, 5, "last"}, {1, 2, "middle"}, {1, 3, "last"}}) {
    dump.add(rank, {replicate}, {1}, {1}, {1});
    dump.records.back().id.module = module;
    dump.records.back().seq = seq;
  }
  const auto tensors = logical_tensors(dump);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[1].id.module, "middle");
  EXPECT_EQ(tensors[2].id.module, "last");
  EXPECT_EQ(tensors[2].seq, 3);
  EXPECT_THAT(tensors[2].records, ElementsAre(1, 3));
}

// What recorders leave in padding is whatever the memory held.
TEST(Merge, PaddingIsNobodys) {
  Fake flat({{"dp", "tp"}, {4, 2}});
  for (int rank = 0; rank < 8; ++rank) {
    const double noise = 100 + rank;  // of 3 elements dp 0 holds two, dp 1 one, the others none
    const std::int64_t first = std::min<std::int64_t>(rank / 2 * 2, 3),
                       last = std::min<std::int64_t>(first + 2, 3);
    std::vector<double> values = {noise, noise};
    for (std::int64_t i = first; i < last; ++i)
      values[static_cast<std::size_t>(i - first)] = 1.0 + static_cast<double>(i);
    flat.add(rank, {replicate, replicate}, {3}, {2}, values);
    flat.records.back().flattened_range = {first, last};
  }
  const Merged merged = flat.merged();
  EXPECT_THAT(merged.replicas, testing::IsEmpty());
  EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(1, 2, 3));

  Fake cut({{"tp", "dp"}, {2, 2}});  // 4 x 3, of which 1 x 2 are the tensor
  for (int rank = 0; rank < 4; ++rank) {
    const double noise = 100 + rank;
    const bool has_row = rank < 2;
    cut.add(rank, {shard(0), replicate}, {4, 3}, {2, 3},
            {has_row ? 1 : noise, has_row ? 2 : noise, noise, noise, noise, noise});
    cut.records.back().cut = Shape{1, 2};
  }
  EXPECT_THAT(cut.merged().replicas, testing::IsEmpty());
  EXPECT_THAT(cut.merged().tensor.whole().values(), ElementsAre(1, 2));
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
}  // namespace assay
