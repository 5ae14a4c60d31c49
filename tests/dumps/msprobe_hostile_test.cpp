#include "assay/dumps/layout/merge.h"
#include "msprobe_tree.h"

// Trees that nobody should have written: the rest of the dump is read, and what is wrong has a sentence.
namespace assay::msprobe_hostile_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A dump with a good tensor and one entry that is not: it is left out with a reason that holds `part`.
void expect_left_out(std::string_view entries, std::string_view part) {
  SCOPED_TRACE(entries.substr(0, 200));
  const Tree tree;
  tree.npy("step0/rank0/dump_tensor_data/good.npy", {1, 2}, {2});
  const std::string good = forward("Module.good.M.forward.0", leaf("[2]", data_name("good.npy")));
  tree.rank("step0/rank0", fmt::format("{},{}", good, entries));
  const auto dump = tree.open();
  EXPECT_THAT(only_left_out(*dump), HasSubstr(part));
  ASSERT_THAT(dump->records, SizeIs(1));
  EXPECT_THAT(dump->read(0).values(), ElementsAre(1, 2));
}

TEST(MsprobeHostile, NamesOfFilesStayInTheirFolder) {
  for (const char* name :
       {"../../secret.npy", "/etc/passwd", "..", ".", "a/b.npy", "a\\\\b", "a\\u0000b", ""})
    expect_left_out(forward("Module.bad.M.forward.0", leaf("[2]", data_name(name))), "data_name");
}

TEST(MsprobeHostile, ShapesThatAreNone) {
  for (const char* shape : {"[-1]", "[NaN]", "[1.5]", "[4611686018427387904,4]", "\"[2]\"", "{}", "null",
                            "[[2]]", "[Infinity]", "[true]"})
    expect_left_out(forward("Module.bad.M.forward.0", leaf(shape)), "shape");
  std::string many = "[1";
  for (int i = 0; i < 999'999; ++i) many += ",1";
  expect_left_out(forward("Module.bad.M.forward.0", leaf(many + "]")), "1000000 dimensions");
}

TEST(MsprobeHostile, TypesThatAreNone) {
  for (const char* head : {R"("type":"torch.Tensor","dtype":"torch.complex64")",
                           R"("type":"torch.Tensor","dtype":"")", R"("type":"numpy.ndarray","dtype":"<U5")"})
    expect_left_out(forward("Module.bad.M.forward.0", leaf("[2]", "", head)), "cannot be compared");
  expect_left_out(forward("Module.bad.M.forward.0", leaf("[2]", "", R"("type":"t","dtype":7)")), "a string");
}

TEST(MsprobeHostile, EntriesOfAnotherKind) {
  for (const char* value : {"5", "null", "[]", "\"text\"", "NaN"})
    expect_left_out(fmt::format(R"("Module.bad.M.forward.0":{})", value), "expected an object");
}

TEST(MsprobeHostile, NestingHasAnEnd) {
  const std::string deep = std::string(20, '[') + leaf("[]") + std::string(20, ']');
  expect_left_out(forward("Module.bad.M.forward.0", deep), "nested deeper");
  const Tree tree;
  tree.raw("step0/rank0", std::string(100'000, '['));
  expect_no_dump(tree.root(), "nested deeper than 64");
}

TEST(MsprobeHostile, AMillionItemsThatAreNoTensors) {
  std::string items = "null";
  for (int i = 0; i < 1'000'000; ++i) items += ",{}";
  const Tree tree;
  tree.rank("step0/rank0", forward("Module.m.M.forward.0", items + "," + leaf("[]")));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(1));
  EXPECT_EQ(dump->records[0].id.arg, "1000001");
}

TEST(MsprobeHostile, JsonThatIsCutOrNone) {
  const std::string whole = dump_json(forward("Module.m.M.forward.0", leaf("[]")));
  for (const std::string& text : {whole.substr(0, whole.size() / 2), std::string(), std::string("[]"),
                                  std::string("{}"), std::string(R"({"data":[]})"), std::string("\0\0", 2)}) {
    const Tree tree;
    tree.raw("step0/rank0", text);
    expect_no_dump(tree.root(), "stop()");
  }
  const Tree tree;
  std::filesystem::create_directories(tree.root() / "step0/rank0/dump.json");
  expect_no_dump(tree.root(), "not a regular file");
}

TEST(MsprobeHostile, NoJsonAtAllIsARunThatWasKilled) {
  const Tree tree;
  tree.npy("step0/rank0/dump_tensor_data/Module.m.M.forward.0.output.0.npy", {1}, {1});
  expect_no_dump(tree.root(), "no dump.json: the run was killed");
  EXPECT_THAT(open_dump(tree.root() / "step0/rank0/dump_tensor_data")->records, SizeIs(1));
}

TEST(MsprobeHostile, FilesThatTheJsonDoesNotName) {
  const Tree tree;
  tree.npy("step0/rank0/dump_tensor_data/a.npy", {1}, {1});
  tree.npy("step0/rank0/dump_tensor_data/b.npy", {1}, {1});
  tree.rank("step0/rank0", forward("Module.m.M.forward.0", leaf("[1]", data_name("a.npy"))));
  EXPECT_THAT(only_left_out(*tree.open()), HasSubstr("1 files that the JSON does not name, first b.npy"));
}

TEST(MsprobeHostile, FilesThatAreNotThere) {
  const Tree tree;
  tree.rank("step0/rank0", forward("Module.m.M.forward.0", leaf("[1]", data_name("a.npy"))));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(1));
  EXPECT_FALSE(dump->records[0].has_bits);
  EXPECT_THAT(dump->notes, ElementsAre(HasSubstr("files of 1 tensors are missing")));
  expect_unreadable(*dump, 0, "its file a.npy is missing");
}

TEST(MsprobeHostile, LinksAreNotFollowed) {
  const Tree tree;
  tree.npy("secret.npy", {1}, {1});
  tree.rank("step0/rank0", forward("Module.m.M.forward.0", leaf("[1]", data_name("a.npy"))));
  std::filesystem::create_directories(tree.root() / "step0/rank0/dump_tensor_data");
  std::filesystem::create_symlink(tree.root() / "secret.npy",
                                  tree.root() / "step0/rank0/dump_tensor_data/a.npy");
  expect_unreadable(*tree.open(), 0, "a.npy");
  std::filesystem::remove_all(tree.root() / "step0/rank0/dump_tensor_data");
  std::filesystem::create_directory(tree.root() / "elsewhere");
  std::filesystem::create_directory_symlink(tree.root() / "elsewhere",
                                            tree.root() / "step0/rank0/dump_tensor_data");
  EXPECT_THAT(only_left_out(*tree.open()), HasSubstr("symbolic link"));
  std::filesystem::create_directory_symlink(tree.root() / "step0/rank0", tree.root() / "step0/rank1");
  EXPECT_THAT(tree.open()->left_out, SizeIs(2));
  EXPECT_THAT(tree.open()->records, SizeIs(1));
  std::filesystem::rename(tree.root() / "step0/rank0/dump.json", tree.root() / "dump.txt");
  std::filesystem::create_symlink(tree.root() / "dump.txt", tree.root() / "step0/rank0/dump.json");
  expect_no_dump(tree.root(), "no tensor can be read");
}

TEST(MsprobeHostile, FilesOfAnotherShapeOrType) {
  const Tree tree;
  const auto entry = [](std::string_view dtype, std::string_view file) {
    return leaf("[2]", data_name(file), fmt::format(R"("type":"mindspore.Tensor","dtype":"{}")", dtype));
  };
  tree.npy("step0/rank0/dump_tensor_data/shape.npy", {1, 2, 3}, {3});
  tree.npy("step0/rank0/dump_tensor_data/type.npy", {1, 2}, {2}, DType::int32);
  tree.npy("step0/rank0/dump_tensor_data/narrow.npy", {1, 1.001}, {2});
  tree.scratch.write("run/step0/rank0/dump_tensor_data/text.npy", "text");
  tree.rank("step0/rank0", forward("Module.m.M.forward.0",
                                   entry("Float32", "shape.npy") + "," + entry("Float32", "type.npy") + "," +
                                       entry("BFloat16", "narrow.npy") + "," + entry("Float32", "text.npy")));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(4));
  expect_unreadable(*dump, 0, "of shape [3], dump.json says float32 of shape [2]");
  expect_unreadable(*dump, 1, "holds int32");
  expect_unreadable(*dump, 2, "bfloat16 widened");
  expect_unreadable(*dump, 3, "text.npy");
}

TEST(MsprobeHostile, OneNameTwice) {
  const Tree tree;
  const std::string entry = forward("Module.m.M.forward.0", leaf("[]"));
  tree.rank("step0/rank0", entry + "," + entry);
  expect_no_dump(tree.root(), "stands twice");
  // Two classes at one path make one identity: merging says so.
  tree.npy("step0/rank0/dump_tensor_data/a.npy", {1}, {1});
  tree.rank("step0/rank0", forward("Module.m.A.forward.0", leaf("[1]", data_name("a.npy"))) + "," +
                               forward("Module.m.B.forward.0", leaf("[1]", data_name("a.npy"))));
  const auto dump = tree.open();
  const auto tensors = logical_tensors(*dump);
  ASSERT_THAT(tensors, SizeIs(1));
  EXPECT_THROW(merge(*dump, tensors[0]), Error);
}

TEST(MsprobeHostile, RanksTwice) {
  const Tree tree;
  tree.rank("step0/rank0", forward("Module.m.M.forward.0", leaf("[]")));
  tree.rank("step0/rank00", forward("Module.m.M.forward.0", leaf("[]")));
  EXPECT_THAT(only_left_out(*tree.open()), HasSubstr("rank00: not the name of a rank's folder"));
  tree.rank("step0/rank", forward("Module.m.M.forward.0", leaf("[]")));
  expect_no_dump(tree.root(), "two folders of rank 0");
}

TEST(MsprobeHostile, RanksOutOfReachAndProcessesWithoutOne) {
  const Tree tree;
  tree.rank("step0/rank0", forward("Module.m.M.forward.0", leaf("[]")));
  tree.rank("step0/rank999999999", forward("Module.m.M.forward.0", leaf("[]")));
  EXPECT_THAT(only_left_out(*tree.open()), HasSubstr("rank999999999"));
  tree.rank("step0/proc17", forward("Module.m.M.forward.0", leaf("[]")));
  expect_no_dump(tree.root(), "single proc folder");
}

TEST(MsprobeHostile, AStepThatOneRankLacks) {
  const Tree tree;
  for (const char* folder : {"step0/rank0", "step0/rank1", "step1/rank0"})
    tree.rank(folder, forward("Module.m.M.forward.0", leaf("[]")));
  EXPECT_THAT(only_left_out(*tree.open()), HasSubstr("step1: rank 1 is missing"));
}

TEST(MsprobeHostile, ConstructOfAnotherKind) {
  for (const char* text :
       {"", "[]", R"({"Module.m.M.forward.0":[1,2,3]})", R"({"Module.m.M.forward.0":["p",-1]})",
        R"({"Module.m.M.forward.0":["p",1e300]})", R"({"Module.m.M.forward.0":["p","1"]})"}) {
    const Tree tree;
    tree.rank("step0/rank0", forward("Module.m.M.forward.0", leaf("[]")));
    tree.scratch.write("run/step0/rank0/construct.json", text);
    const auto dump = tree.open();
    ASSERT_THAT(dump->records, SizeIs(1));
    EXPECT_EQ(dump->records[0].id.micro_batch, -1) << text;
    EXPECT_THAT(dump->left_out, IsEmpty());
  }
}

}  // namespace
}  // namespace assay::msprobe_hostile_test
