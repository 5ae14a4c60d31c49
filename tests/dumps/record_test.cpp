#include <gtest/gtest.h>

#include "assay/dumps/layout.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

TEST(Record, PlacementsReadBack) {
  for (const char* text : {"Replicate()", "Shard(dim=0)", "Shard(dim=12)", "Partial(sum)"}) {
    EXPECT_EQ(to_string(parse_placement(text)), text);
  }
  for (const char* text :
       {"", "Shard(dim=)", "Shard(dim=-1)", "Shard(dim=1", "Shard(1)", "Partial(avg)", "Replicate() "}) {
    EXPECT_THROW(parse_placement(text), Error) << text;
  }
}

TEST(Record, IdentitiesReadWell) {
  EXPECT_EQ(to_string(Identity{0, -1, Phase::backward, "layers.1.attn_norm", "grad", "weight", 0}),
            "layers.1.attn_norm grad weight (step 0, backward)");
  EXPECT_EQ(to_string(Identity{2, 1, Phase::forward, "head", "output", "", 3}),
            "head output (step 2, micro-batch 1, forward, call 3)");
  EXPECT_EQ(to_string(Identity{0, -1, Phase::none, "weights/w", "", "", 0}), "weights/w");
}

Record sharded(Shape global, Shape local, std::vector<Placement> placements,
               std::vector<std::int64_t> coordinate) {
  Record record;
  record.global_shape = std::move(global);
  record.shape = std::move(local);
  record.placements = std::move(placements);
  record.mesh_coordinate = std::move(coordinate);
  return record;
}

constexpr Placement shard0{Placement::Kind::shard, 0};

// torch.arange(7).chunk(4) is 2, 2, 2, 1; torch.arange(5).chunk(4) is 2, 2, 1 and nothing for the last.
TEST(Layout, CutsAsTorchChunk) {
  const Mesh mesh{{"tp"}, {4}};
  EXPECT_EQ(box_of(sharded({7}, {2}, {shard0}, {2}), mesh), (Box{{4}, {2}}));
  EXPECT_EQ(box_of(sharded({7}, {1}, {shard0}, {3}), mesh), (Box{{6}, {1}}));
  EXPECT_EQ(box_of(sharded({5}, {1}, {shard0}, {2}), mesh), (Box{{4}, {1}}));
  EXPECT_EQ(box_of(sharded({5}, {0}, {shard0}, {3}), mesh), (Box{{5}, {0}}));
  EXPECT_THROW(box_of(sharded({7}, {2}, {shard0}, {3}), mesh), Error);
}

// One dimension over two mesh dimensions: 10 over dp 2 is 5 + 5, then each 5 over tp 2 is 3 + 2.
TEST(Layout, NestsLeftToRight) {
  const Mesh mesh{{"dp", "tp"}, {2, 2}};
  EXPECT_EQ(box_of(sharded({10}, {3}, {shard0, shard0}, {1, 0}), mesh), (Box{{5}, {3}}));
  EXPECT_EQ(box_of(sharded({10}, {2}, {shard0, shard0}, {1, 1}), mesh), (Box{{8}, {2}}));
}

TEST(Layout, OffsetsStayInside) {
  Record record = sharded({10}, {3}, {shard0}, {0});
  record.offsets = Shape{7};
  EXPECT_EQ(box_of(record, {{"tp"}, {2}}), (Box{{7}, {3}}));
  record.offsets = Shape{8};
  EXPECT_THROW(box_of(record, {{"tp"}, {2}}), Error);
}

}  // namespace
}  // namespace assay
