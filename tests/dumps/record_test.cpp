#include <gtest/gtest.h>

#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"

namespace assay::record_test {
namespace {

TEST(Record, PlacementsReadBack) {
  for (const char* text : {"Replicate()", "Shard(dim=0)", "Shard(dim=12)", "Shard(dim=1, zigzag)",
                           "_StridedShard(dim=0, sf=2)", "Partial(sum)"}) {
    EXPECT_EQ(to_string(parse_placement(text)), text);
  }
  for (const char* text :
       {"", "Shard(dim=)", "Shard(dim=-1)", "Shard(dim=1", "Shard(1)", "Partial(avg)", "Replicate() ",
        "Shard(dim=99999999999)", "_StridedShard(dim=0, sf=0)", "_StridedShard(dim=0)"}) {
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

}  // namespace
}  // namespace assay::record_test
