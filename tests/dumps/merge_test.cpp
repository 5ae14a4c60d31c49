#include <limits>

#include "merged_dump.h"

// Ranks that hold a part each.
namespace assay::merge_test {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace assay::merge_test
