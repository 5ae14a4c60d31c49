// Sketches of what ranks hold make the sketch of the whole, whatever the layout: held against merge().
#include "assay/dumps/layout/merged_sketch.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "assay/dumps/assay_dump_writer.h"
#include "assay/golden/sketcher.h"
#include "merged_dump.h"
#include "scratch.h"
#include "sketched_dump.h"

namespace assay::merged_sketch_test {
namespace {

// Integers, whose sums are exact.
double element(std::int64_t i) {
  return static_cast<double>(i * 2654435761 % 257) - 128;
}

// The elements at these global indices of the one dimension that is cut.
std::vector<double> elements_at(const Shape& global, int dim, const std::vector<std::int64_t>& indices) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(global); ++i) {
    if (std::ranges::find(indices, unravel(i, global)[static_cast<std::size_t>(dim)]) != indices.end())
      values.push_back(element(i));
  }
  return values;
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = first; i < last; ++i) indices.push_back(i);
  return indices;
}

MergedSketch merged(const Dump& dump) {
  return merge_sketches(dump, logical_tensors(dump).at(0), {});
}

void expect_sketch_of_whole(const Fake& dump) {
  const Sketch expected = sketch_of(dump.merged().tensor);
  const MergedSketch found = merged(Sketched(dump));
  EXPECT_EQ(found.sketch.values, expected.values);
  EXPECT_EQ(found.sketch.fingerprint, expected.fingerprint);
  EXPECT_EQ(found.sketch.square, expected.square);
  EXPECT_EQ(found.sketch.peak, expected.peak);
  EXPECT_TRUE(found.replicas.empty());
}

TEST(MergedSketch, ShardsOfEachDimension) {
  const Shape global = {6, 10, 20};
  for (int dim = 0; dim < 3; ++dim) {
    const std::int64_t extent = global[static_cast<std::size_t>(dim)], half = extent / 2;
    Fake dump({{"tp"}, {2}});
    for (int rank = 0; rank < 2; ++rank) {
      Shape shape = global;
      shape[static_cast<std::size_t>(dim)] = half;
      dump.add(rank, {shard(dim)}, global, shape,
               elements_at(global, dim, range(rank * half, rank * half + half)));
    }
    expect_sketch_of_whole(dump);
  }
}

TEST(MergedSketch, UnevenEmptyAndOffset) {
  const Shape global = {9, 50};
  Fake uneven({{"tp"}, {4}});
  for (int rank = 0; rank < 4; ++rank) {
    const std::int64_t first = 3 * rank, last = std::min<std::int64_t>(9, first + 3);
    uneven.add(rank, {shard(0)}, global, {std::max<std::int64_t>(last - first, 0), 50},
               elements_at(global, 0, range(first, last)));
  }
  expect_sketch_of_whole(uneven);
  Fake offsets({{"tp"}, {2}});
  offsets.add(0, {shard(0)}, global, {2, 50}, elements_at(global, 0, range(0, 2)), Shape{0, 0});
  offsets.add(1, {shard(0)}, global, {7, 50}, elements_at(global, 0, range(2, 9)), Shape{2, 0});
  expect_sketch_of_whole(offsets);
}

TEST(MergedSketch, ZigzagOfRowsAndColumns) {
  for (const Shape& global : {Shape{8, 60}, Shape{60, 8}}) {
    const int dim = global[0] == 8 ? 0 : 1;
    Fake dump({{"cp"}, {2}});
    const std::vector<std::vector<std::int64_t>> own = {{0, 1, 6, 7}, {2, 3, 4, 5}};
    Placement zigzag = shard(dim);
    zigzag.zigzag = true;
    for (int rank = 0; rank < 2; ++rank) {
      Shape shape = global;
      shape[static_cast<std::size_t>(dim)] = 4;
      dump.add(rank, {zigzag}, global, shape, elements_at(global, dim, own[static_cast<std::size_t>(rank)]));
    }
    expect_sketch_of_whole(dump);
  }
}

TEST(MergedSketch, FlatRangesThatCrossRows) {
  const Shape global = {20, 30};
  Fake dump({{"dp"}, {3}});
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<double> values;
    for (std::int64_t i = 205 * rank; i < 205 * rank + 205; ++i) values.push_back(i < 600 ? element(i) : 99);
    dump.add(rank, {replicate}, global, {205}, values);
    dump.records.back().flattened_range = {205 * rank, std::min<std::int64_t>(600, 205 * rank + 205)};
  }
  expect_sketch_of_whole(dump);
}

TEST(MergedSketch, PaddingIsNotInIt) {
  Fake dump({{"tp"}, {2}});
  for (int rank = 0; rank < 2; ++rank) {
    dump.add(rank, {shard(0)}, {20, 30}, {10, 30},
             elements_at({20, 30}, 0, range(10 * rank, 10 * rank + 10)));
    dump.records.back().cut = Shape{17, 30};
  }
  expect_sketch_of_whole(dump);
}

TEST(MergedSketch, PartialSums) {
  const Shape global = {20, 30};
  Fake dump({{"dp", "tp"}, {2, 2}});
  std::vector<double> sum;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < 300; ++i)
      values.push_back(element(300 * (rank % 2) + i) * (rank < 2 ? 1 : 3));
    dump.add(rank, {partial, shard(0)}, global, {10, 30}, values);
  }
  const MergedSketch found = merged(Sketched(dump));
  EXPECT_EQ(found.sketch.values, sketch_of(dump.merged().tensor).values);
  EXPECT_FALSE(found.sketch.fingerprint || found.sketch.square || found.sketch.peak);
}

TEST(MergedSketch, CopiesAreComparedByFingerprints) {
  const Shape global = {20, 30};
  Fake equal({{"dp"}, {2}}), different({{"dp"}, {2}});
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<double> values = elements_at(global, 0, range(0, 20));
    equal.add(rank, {replicate}, global, global, values);
    values[77] += rank;
    different.add(rank, {replicate}, global, global, values);
  }
  expect_sketch_of_whole(equal);
  const MergedSketch found = merged(Sketched(different));
  ASSERT_EQ(found.replicas.size(), 1u);
  EXPECT_EQ(found.replicas[0].mesh_dim, "dp");
  EXPECT_EQ(found.replicas[0].rank_b, 1);
  EXPECT_EQ(found.sketch.values, sketch_of(different.merged().tensor).values);
  EXPECT_EQ(found.sum_of_replicas.value().values, sketch_of(*different.merged().sum_of_replicas).values);
}

TEST(MergedSketch, NeedsEveryPartAndTheSameLayout) {
  const auto expect = [](const Dump& dump, std::string_view part) {
    EXPECT_THAT([&] { merged(dump); }, testing::ThrowsMessage<Error>(testing::HasSubstr(part)));
  };
  Fake gap({{"tp"}, {2}});
  gap.add(0, {shard(0)}, {20, 30}, {10, 30}, elements_at({20, 30}, 0, range(0, 10)));
  expect(Sketched(gap), "a rank or a part is missing");
  Fake addend({{"tp"}, {2}});
  addend.add(0, {partial}, {20, 30}, {20, 30}, elements_at({20, 30}, 0, range(0, 20)));
  expect(Sketched(addend), "the addend of tp=1 is missing");
  Fake whole({{"tp"}, {1}});
  whole.add(0, {replicate}, {20, 30}, {20, 30}, elements_at({20, 30}, 0, range(0, 20)));
  Sketched moved(whole);
  moved.records[0].shape = moved.records[0].global_shape = {30, 20};
  expect(moved, "sketched it as a part of [20, 30], but it is one of [30, 20]");
}

TEST(MergedSketch, IsWrittenAndReadBack) {
  Fake dump({{"tp"}, {2}});
  for (int rank = 0; rank < 2; ++rank)
    dump.add(rank, {shard(1)}, {20, 30}, {20, 15},
             elements_at({20, 30}, 1, range(15 * rank, 15 * rank + 15)));
  const Scratch scratch;
  const auto folder = scratch.path() / "run";
  AssayDumpWriter writer(folder, {2, dump.mesh, ""});
  for (std::size_t i = 0; i < 2; ++i) writer.add(dump.records[i], sketch_of_record(dump, i, {8, 2, 20, 3}));
  EXPECT_THROW(writer.add(dump.records[1], Sketch::nothing({3, 3}, {})), Error);
  writer.finish();
  const auto read = open_dump(folder);
  EXPECT_FALSE(read->records[0].has_bits);
  EXPECT_THAT([&] { read->read(0); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("only its sketch was")));
  const Sketch found = merged(*read).sketch, expected = sketch_of(dump.merged().tensor, {8, 2, 20, 3});
  EXPECT_EQ(found.spec, expected.spec);
  EXPECT_EQ(found.values, expected.values);
  EXPECT_EQ(found.fingerprint, expected.fingerprint);
  EXPECT_EQ(found.square, expected.square);
  EXPECT_NEAR(read->records[0].statistics->l2.value(), std::sqrt(*sketch_of_record(dump, 0, {}).square),
              1e-9);
}

// Lines of an index, each with one word changed.
TEST(MergedSketch, DamagedRecordsAreRefused) {
  Fake dump({{"tp"}, {1}});
  dump.add(0, {replicate}, {20, 30}, {20, 30}, elements_at({20, 30}, 0, range(0, 20)));
  const Scratch scratch;
  const std::string line =
      R"({"seq":0,"step":0,"module":"m","dtype":"float32","shape":[20,30],"sketch":{"version":1,"grid":[4,4],)"
      R"("signs":16,"seed":0},"nan":0,"pinf":0,"ninf":0,"square":1,"fingerprint":"40469f9ff9b87b5c",)"
      R"("data":{"file":"rank00000.safetensors","name":"t"}})";
  const std::string header = R"({"t":{"dtype":"F64","shape":[256],"data_offsets":[0,2048]}})";
  std::string tensors(8, '\0');
  tensors[0] = static_cast<char>(header.size());
  tensors += header + std::string(2048, '\0');
  scratch.write("run/manifest.json", R"({"format":"assay-dump","version":1,"world_size":1})");
  scratch.write("run/rank00000.safetensors", tensors);
  const auto open = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    scratch.write("run/rank00000.jsonl", changed + "\n");
    return open_dump(scratch.path() / "run");
  };
  EXPECT_EQ(open("\"m\"", "\"n\"")->read_sketch(0).fingerprint, 0x40469f9ff9b87b5c);
  const std::pair<std::string, std::pair<std::string, std::string>> damages[] = {
      {"\"version\":1,\"g", {"\"version\":2,\"g", "is of version 2, expected 1"}},
      {"[4,4]", {"[4]", "expected the blocks of rows and of columns"}},
      {"[4,4]", {"[0,4]", "expected at least 1 of each"}},
      {"[4,4]", {"[8,4]", "the file holds F64 of shape [256], the index says float64 of shape [512]"}},
      {"\"signs\":16", {"\"signs\":-1", "signs is -1"}},
      {"\"nan\":0,", {"", "nan"}},
      {"\"square\":1", {"\"square\":-1", "square is no number from 0 on"}},
      {"40469f9ff9b87b5c", {"40469F9FF9B87B5C", "expected 16 hexadecimal digits"}}};
  for (const auto& [from, change] : damages)
    EXPECT_THAT([&] { open(from, change.first); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(change.second)))
        << from;
}

}  // namespace
}  // namespace assay::merged_sketch_test
