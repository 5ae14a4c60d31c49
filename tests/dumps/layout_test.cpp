#include "assay/dumps/layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/golden/error.h"

// What parts of real layouts make up is tested on the samples of tests/data/layout_samples, which PyTorch has
// cut; here stands where each part lies.
namespace assay::layout_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Record sharded(Shape global, Shape local, std::vector<Placement> placements,
               std::vector<std::int64_t> coordinate) {
  Record record;
  record.global_shape = std::move(global);
  record.shape = std::move(local);
  record.placements = std::move(placements);
  record.mesh_coordinate = std::move(coordinate);
  return record;
}

std::vector<Box> boxes_of(const Record& record, const Mesh& mesh,
                          const std::vector<std::int64_t>& rows = {}) {
  std::vector<Box> boxes;
  for (const Piece& piece : pieces_of(record, mesh, rows)) boxes.push_back(piece.box);
  return boxes;
}

constexpr Placement shard0{Placement::Kind::shard, 0};

// torch.arange(7).chunk(4) is 2, 2, 2, 1; torch.arange(5).chunk(4) is 2, 2, 1 and nothing for the last.
TEST(Layout, CutsAsTorchChunk) {
  const Mesh mesh{{"tp"}, {4}};
  EXPECT_THAT(boxes_of(sharded({7}, {2}, {shard0}, {2}), mesh), ElementsAre(Box{{4}, {2}}));
  EXPECT_THAT(boxes_of(sharded({7}, {1}, {shard0}, {3}), mesh), ElementsAre(Box{{6}, {1}}));
  EXPECT_THAT(boxes_of(sharded({5}, {1}, {shard0}, {2}), mesh), ElementsAre(Box{{4}, {1}}));
  EXPECT_THAT(boxes_of(sharded({5}, {0}, {shard0}, {3}), mesh), IsEmpty());
  EXPECT_THROW(boxes_of(sharded({7}, {2}, {shard0}, {3}), mesh), Error);
}

// One dimension over two mesh dimensions: 10 over dp 2 is 5 + 5, then each 5 over tp 2 is 3 + 2.
TEST(Layout, NestsLeftToRight) {
  const Mesh mesh{{"dp", "tp"}, {2, 2}};
  EXPECT_THAT(boxes_of(sharded({10}, {3}, {shard0, shard0}, {1, 0}), mesh), ElementsAre(Box{{5}, {3}}));
  EXPECT_THAT(boxes_of(sharded({10}, {2}, {shard0, shard0}, {1, 1}), mesh), ElementsAre(Box{{8}, {2}}));
}

// DTensor's documentation: shards [0, 1, 5], [2, 3, 6], [4, 7], [8] of 9 elements.
TEST(Layout, StridedShardsHoldAPieceOfEachPart) {
  const Mesh mesh{{"dp"}, {4}};
  const Placement strided{Placement::Kind::shard, 0, 2};
  EXPECT_THAT(boxes_of(sharded({9}, {3}, {strided}, {0}), mesh), ElementsAre(Box{{0}, {2}}, Box{{5}, {1}}));
  EXPECT_THAT(boxes_of(sharded({9}, {2}, {strided}, {2}), mesh), ElementsAre(Box{{4}, {1}}, Box{{7}, {1}}));
  EXPECT_THAT(boxes_of(sharded({9}, {1}, {strided}, {3}), mesh), ElementsAre(Box{{8}, {1}}));
}

TEST(Layout, ZigzagShardsHoldAnEarlyAndALatePiece) {
  const Mesh mesh{{"cp"}, {2}};
  const Placement zigzag{Placement::Kind::shard, 0, 1, true};
  EXPECT_THAT(boxes_of(sharded({8}, {4}, {zigzag}, {0}), mesh), ElementsAre(Box{{0}, {2}}, Box{{6}, {2}}));
  EXPECT_THAT(boxes_of(sharded({8}, {4}, {zigzag}, {1}), mesh), ElementsAre(Box{{2}, {4}}));
}

// Elements 5 to 21 of [3, 4, 2]: the end of a row, whole rows, the start of one.
TEST(Layout, FlatRangesAreBoxes) {
  Record record = sharded({3, 4, 2}, {16}, {Placement{}}, {0});
  record.flattened_range = {5, 21};
  const std::vector<Piece> pieces = pieces_of(record, {{"dp"}, {2}});
  std::vector<Box> boxes;
  std::vector<std::int64_t> starts;
  for (const Piece& piece : pieces) {
    boxes.push_back(piece.box);
    starts.push_back(piece.at);
  }
  EXPECT_THAT(boxes,
              ElementsAre(Box{{0, 2, 1}, {1, 1, 1}}, Box{{0, 3, 0}, {1, 1, 2}}, Box{{1, 0, 0}, {1, 4, 2}},
                          Box{{2, 0, 0}, {1, 2, 2}}, Box{{2, 2, 0}, {1, 1, 1}}));
  EXPECT_THAT(starts, ElementsAre(0, 1, 3, 11, 15));
  record.flattened_range = {9, 25};
  EXPECT_THROW(pieces_of(record, {{"dp"}, {2}}), Error);
}

TEST(Layout, PaddingBelongsToNoPiece) {
  const Mesh mesh{{"tp"}, {4}};
  Record record = sharded({16}, {4}, {shard0}, {2});
  record.cut = Shape{10};
  EXPECT_THAT(boxes_of(record, mesh), ElementsAre(Box{{8}, {2}}));
  record.mesh_coordinate = {3};
  EXPECT_THAT(boxes_of(record, mesh), IsEmpty());
}

TEST(Layout, RowsMayLieAnywhere) {
  Record record = sharded({9, 2}, {4, 2}, {}, {});
  record.rows = 0;
  EXPECT_THAT(boxes_of(record, {}, {7, 2, 3, 0}),
              ElementsAre(Box{{7, 0}, {1, 2}}, Box{{2, 0}, {2, 2}}, Box{{0, 0}, {1, 2}}));
  EXPECT_THROW(boxes_of(record, {}, {7, 2, 3}), Error);
  EXPECT_THROW(boxes_of(record, {}, {7, 2, 3, 9}), Error);
  EXPECT_THROW(boxes_of(record, {}, {7, 2, -1, 0}), Error);
}

TEST(Layout, OffsetsStayInside) {
  Record record = sharded({10}, {3}, {shard0}, {0});
  record.offsets = Shape{7};
  EXPECT_THAT(boxes_of(record, {{"tp"}, {2}}), ElementsAre(Box{{7}, {3}}));
  record.offsets = Shape{8};
  EXPECT_THROW(boxes_of(record, {{"tp"}, {2}}), Error);
}

TEST(Layout, HugeClaimsEndSoon) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const Placement strided{Placement::Kind::shard, 0, huge};
  EXPECT_THROW(boxes_of(sharded({huge}, {1}, {strided}, {0}), {{"dp"}, {1}}), Error);
  EXPECT_THROW(boxes_of(sharded({huge}, {1}, {shard0}, {0}), {{"dp"}, {huge}}), Error);
  const Placement many{Placement::Kind::shard, 0, 1 << 20};
  EXPECT_THROW(boxes_of(sharded({huge}, {1}, {many}, {0}), {{"dp"}, {1 << 20}}), Error);
}

}  // namespace
}  // namespace assay::layout_test
