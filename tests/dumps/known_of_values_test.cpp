#include <fmt/format.h>
#include <gmock/gmock.h>

#include "assay/dumps/layout/merge.h"
#include "assay/dumps/layout/merged_statistics.h"
#include "assay/golden/error.h"
#include "scratch.h"

// Dumps whose recorder has written what it computed of tensors, and not these.
namespace assay::known_of_values_test {
namespace {

using testing::HasSubstr;

/// Ranks that hold four elements each, of which this is known.
std::unique_ptr<Dump> dump_of(const Scratch& scratch, const std::vector<std::string>& known) {
  const std::size_t ranks = known.size();
  scratch.write("manifest.json", fmt::format(R"j({{"format":"assay-dump","version":1,"world_size":{0},)j"
                                             R"j("mesh":{{"dims":["tp"],"shape":[{0}]}}}})j",
                                             ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    scratch.write(fmt::format("rank{:05}.jsonl", rank),
                  fmt::format(R"j({{"seq":0,"step":0,"phase":"forward","module":"a","slot":"output",)j"
                              R"j("arg":"y","dtype":"bfloat16","shape":[4],"global_shape":[{}],)j"
                              R"j("placements":["Shard(dim=0)"],"mesh_coordinate":[{}]{}}})j",
                              4 * ranks, rank, known[rank]) +
                      "\n");
  }
  return open_dump(scratch.path());
}

std::string trouble_with(const std::string& known) {
  try {
    const Scratch scratch;
    dump_of(scratch, {known});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KnownOfValues, StatisticsOfRanksAreThoseOfTheWhole) {
  const Scratch scratch;
  const auto dump =
      dump_of(scratch, {R"(,"statistics":{"min":-1,"max":2,"mean":0.5,"l2":3,"arithmetic":"float64"})",
                        R"(,"statistics":{"min":0,"max":"inf","mean":"inf","l2":4,"arithmetic":"float64"})"});
  ASSERT_EQ(dump->records.size(), 2);
  const Record& first = dump->records.front();
  EXPECT_FALSE(first.has_bits);
  EXPECT_EQ(first.statistics->mean, 0.5);
  EXPECT_EQ(first.statistics->arithmetic, DType::float64);
  const MergedStatistics merged = merge_statistics(*dump, logical_tensors(*dump).at(0));
  EXPECT_EQ(merged.statistics->min, -1);
  EXPECT_EQ(merged.statistics->max, infinity);
  EXPECT_EQ(merged.statistics->l2, 5);
  EXPECT_EQ(merged.statistics->arithmetic, DType::float64);
  EXPECT_TRUE(merged.part_checksums.empty());
  try {
    dump->source(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("rank00000: a output y (step 0, forward): its values were not recorded"));
  }
}

TEST(KnownOfValues, ChecksumsOfRanksStayThoseOfParts) {
  const Scratch scratch;
  const auto dump = dump_of(scratch, {R"(,"checksum":"sha256:00")", R"(,"checksum":"sha256:01")"});
  const MergedStatistics merged = merge_statistics(*dump, logical_tensors(*dump).at(0));
  EXPECT_EQ(merged.checksum, "");
  EXPECT_EQ(merged.part_checksums, (std::vector<PartChecksum>{{{{{0}, {4}}}, true, "sha256:00"},
                                                              {{{{4}, {4}}}, true, "sha256:01"}}));
}

TEST(KnownOfValues, ARecordThatSaysNothingIsRefused) {
  EXPECT_THAT(trouble_with(""),
              HasSubstr("has no data, no statistics and no checksum; expected one of them"));
  EXPECT_THAT(trouble_with(R"(,"statistics":{})"), HasSubstr("has no data, no statistics and no checksum"));
  EXPECT_THAT(trouble_with(R"(,"statistics":3)"), HasSubstr("statistics is an integer, expected an object"));
  EXPECT_THAT(trouble_with(R"(,"statistics":{"min":0,"arithmetic":"int8"})"),
              HasSubstr("arithmetic is 'int8', expected a floating dtype such as float64"));
}

}  // namespace
}  // namespace assay::known_of_values_test
