#include "assay/dumps/layout/merge.h"
#include "msprobe_tree.h"

namespace assay::msprobe_layout_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(MsprobeHostile, LayoutsThatCannotBe) {
  for (const char* layout :
       {R"("device_mesh":[0,0],"placements":[{"Replicate":{}}])",
        R"("device_mesh":5,"placements":[])",
        R"("device_mesh":[[0,1],[2]],"placements":[{"Replicate":{}},{"Replicate":{}}])",
        R"("device_mesh":[0,[1]],"placements":[{"Replicate":{}}])",
        R"("device_mesh":[],"placements":[])",
        R"("device_mesh":[0,-1],"placements":[{"Replicate":{}}])",
        R"("device_mesh":[0,1],"placements":[])",
        R"("device_mesh":[0,1],"placements":[{"Shard":{"dim":9}}])",
        R"("device_mesh":[0,1],"placements":[7])",
        R"("device_mesh":[0,1],"placements":[{"Shard":{"dim":9223372036854775807}}])",
        R"("device_mesh":[0,1],"placements":[{"Partial":{"reduce_op":"avg"}}])",
        R"("device_mesh":[[0,1],[2,3]],"placements":[{"Shard":{"dim":0}},{"Shard":{"dim":0}}])",
        R"("layout":{"Device Matrix":[1000000,1000000],"Tensor Map":[0]})",
        R"("layout":{"Device Matrix":[0],"Tensor Map":[0]})",
        R"("layout":{"Device Matrix":[2],"Tensor Map":[1]})",
        R"("layout":{"Device Matrix":[2],"Tensor Map":[0,0]})",
        R"("layout":{"Device Matrix":[2],"Tensor Map":[[0,0]]})",
        R"("layout":{"Device Matrix":[2],"Tensor Map":[0],"Partial":["sum"]})",
        R"("layout":{"Device Matrix":[2],"Tensor Map":[0],"Rank List":[0]})",
        R"("layout":{"Device Matrix":[2],"Tensor Map":[0],"Interleaved":"Yes"})"}) {
    SCOPED_TRACE(layout);
    const Tree tree;
    tree.rank("step0/rank0",
              forward("Module.m.M.forward.0", leaf("[2]", fmt::format(",{}", layout)) + "," + leaf("[]")));
    const auto dump = tree.open();
    EXPECT_THAT(dump->left_out, SizeIs(1));
    EXPECT_THAT(dump->records, SizeIs(1));
  }
}

std::string part(std::string_view mesh, std::string_view placement, std::string_view file,
                 std::string_view shape) {
  return leaf(shape,
              fmt::format(R"(,"device_mesh":{},"placements":[{}],"data_name":"{}")", mesh, placement, file));
}

TEST(MsprobeLayout, DifferentMeshesAreNotGuessed) {
  const Tree tree;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string folder = fmt::format("step0/rank{}", rank);
    tree.npy(folder + "/dump_tensor_data/a.npy", {rank + 1.0}, {1});
    const std::string own = fmt::format("[{}]", rank);
    tree.rank(folder, forward("Module.m.M.forward.0",
                              part("[0,1]", R"({"Shard":{"dim":0}})", "a.npy", "[1]") + "," +
                                  part(own, R"({"Replicate":{}})", "a.npy", "[1]") + "," +
                                  part("[0,1]", R"({"Partial":{"reduce_op":"sum"}})", "a.npy", "[1]")));
  }
  const auto dump = tree.open();
  EXPECT_THAT(dump->mesh.dims, IsEmpty());
  EXPECT_THAT(dump->notes, ElementsAre(HasSubstr("different meshes")));
  EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("partial sum"), HasSubstr("partial sum")));
  const auto tensors = logical_tensors(*dump);
  ASSERT_THAT(tensors, SizeIs(2));
  EXPECT_THAT(merge(*dump, tensors[0]).tensor.whole().values(), ElementsAre(1, 2));
}

TEST(MsprobeLayout, AMissingRankIsMissed) {
  const Tree tree;
  tree.npy("step0/rank0/dump_tensor_data/a.npy", {1}, {1});
  tree.rank("step0/rank0",
            forward("Module.m.M.forward.0", part("[0,1]", R"({"Shard":{"dim":0}})", "a.npy", "[1]")));
  const auto dump = tree.open();
  const auto tensors = logical_tensors(*dump);
  ASSERT_THAT(tensors, SizeIs(1));
  EXPECT_THAT([&] { merge(*dump, tensors[0]); },
              testing::ThrowsMessage<Error>(HasSubstr("a rank or a part is missing")));
  // Opened alone, the rank's part is all there is.
  const auto alone = open_dump(tree.root() / "step0/rank0");
  EXPECT_THAT(merge(*alone, logical_tensors(*alone)[0]).tensor.whole().values(), ElementsAre(1));
  EXPECT_THAT(alone->notes, ElementsAre(HasSubstr("one rank's folder")));
}

TEST(MsprobeLayout, PartsThatAddUpToTooMuch) {
  const Tree tree;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string extent = std::to_string((std::int64_t{1} << 62) + rank);
    tree.rank(fmt::format("step0/rank{}", rank),
              forward("Module.m.M.forward.0",
                      part("[0,1]", R"({"Shard":{"dim":0}})", "a.npy", "[" + extent + "]")));
  }
  EXPECT_THAT(tree.open()->left_out, SizeIs(2));
}

// A part of another shape than torch.chunk's cut is found by merging, not trusted.
TEST(MsprobeLayout, PartsThatDoNotFit) {
  const Tree tree;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string folder = fmt::format("step0/rank{}", rank);
    const std::vector<double> values(rank == 0 ? 1 : 4, 0.0);
    tree.npy(folder + "/dump_tensor_data/a.npy", values, {static_cast<std::int64_t>(values.size())});
    tree.rank(folder, forward("Module.m.M.forward.0", part("[0,1]", R"({"Shard":{"dim":0}})", "a.npy",
                                                           fmt::format("[{}]", values.size()))));
  }
  const auto dump = tree.open();
  EXPECT_THROW(merge(*dump, logical_tensors(*dump)[0]), Error);
}

}  // namespace
}  // namespace assay::msprobe_layout_test
