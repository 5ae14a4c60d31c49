#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "assay/dumps/io/checksum.h"
#include "assay/dumps/record/dump.h"
#include "assay/dumps/record/statistics.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::inspect_listing_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::filesystem::path made(std::string_view name) {
  return std::filesystem::path(ASSAY_TEST_DATA) / "statistics" / name;
}

// A listing with one tensor, "x", of two float32; `more` is added to it.
std::string listing(const std::string& more, const std::string& left_out = "") {
  return R"({"schema": "inspect/1", "notes": [], "left_out": [)" + left_out +
         R"(], "unreadable": [], "tensors": [{"name": "x", "dtype": "float32", "shape": [2], "step": 3,
            "micro_batch": 1, "phase": "forward", "module": "m", "slot": "input", "arg": "0", "call": 2, "op": "",
            "layout": "")" +
         more + "}]}";
}

// Python's statistics and hashes of the tensors that msprobe recorded: make_statistics.py.
TEST(InspectListing, SaysOfTensorsWhatIsComputedOfThem) {
  const auto listed = open_dump(made("listing.json")), recorded = open_dump(made("tensor"));
  EXPECT_EQ(listed->format, "inspect --json");
  ASSERT_EQ(listed->records.size(), 15u);
  ASSERT_EQ(recorded->records.size(), 15u);
  EXPECT_THAT(listed->left_out, IsEmpty());
  for (std::size_t i = 0; i < 15; ++i) {
    const Record& record = listed->records[i];
    EXPECT_EQ(record.id, recorded->records[i].id);
    EXPECT_FALSE(record.has_bits);
    // msprobe saves no empty tensors.
    const Tensor tensor =
        recorded->records[i].has_bits ? recorded->read(i) : Tensor(record.dtype, record.shape);
    EXPECT_EQ(record.statistics, statistics_of(tensor)) << to_string(record.id);
    EXPECT_EQ(has_checksum(tensor, record.checksum), true) << to_string(record.id);
  }
  EXPECT_THROW(listed->read(0), Error);
}

TEST(InspectListing, KeepsIdentitiesAndWhatCouldNotBeListed) {
  const Scratch scratch;
  const auto dump = open_dump(scratch.write(
      "x.json",
      listing(
          R"(, "count": 512, "min": "-inf", "max": 2, "nan": 0, "inf": 1, "copies_differ": "ranks 0 and 1")",
          R"("run: a file")")));
  const Record& record = dump->records.at(0);
  EXPECT_EQ(record.id, (Identity{3, 1, Phase::forward, "m", "input", "0", 2}));
  EXPECT_EQ(record.count, 512);
  EXPECT_EQ(record.statistics->min, -infinity);
  EXPECT_EQ(record.statistics->sum, std::nullopt);
  EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr("ranks 0 and 1"), "run: a file"));
}

TEST(InspectListing, TakesWhatRecordersHadOfTensorsWithoutValues) {
  const Scratch scratch;
  const auto dump = open_dump(scratch.write(
      "x.json",
      listing(R"(, "recorded": [{"rank": 1, "shape": [2], "max": 2, "l2": "nan", "checksum": "crc32:00"},
                                {"rank": 4, "shape": [2]}])")));
  ASSERT_EQ(dump->records.size(), 2u);
  EXPECT_EQ(dump->records[0].statistics->max, 2);
  EXPECT_TRUE(std::isnan(dump->records[0].statistics->l2.value()));
  EXPECT_EQ(dump->records[0].checksum, "crc32:00");
  EXPECT_FALSE(dump->records[1].statistics);
  EXPECT_EQ(dump->records[0].rank, 1);
  EXPECT_EQ(dump->records[1].rank, 4);
  EXPECT_THAT(open_dump(scratch.write("y.json", listing("")))->notes,
              ElementsAre(HasSubstr("without --stats and --hash")));
}

TEST(InspectListing, TakesNothingOfParts) {
  const Scratch scratch;
  for (const std::string part : {R"("shape": [1], )", ""}) {
    const auto dump = open_dump(scratch.write(
        "x.json", listing(R"(, "recorded": [{"rank": 0, "shape": [2], "max": 2}, {"rank": 1, )" + part +
                          R"("max": 3}])")));
    ASSERT_EQ(dump->records.size(), 1u);
    EXPECT_FALSE(dump->records[0].statistics);
  }
}

TEST(InspectListing, WhatIsWrongIsLeftOut) {
  const Scratch scratch;
  for (const auto& [more, says] : std::map<std::string, std::string>{
           {R"(, "nan": 3)", "nan is 3, expected 0 to 2 elements"},
           {R"(, "inf": -1)", "inf is -1, expected 0 to 2 elements"},
           {R"(, "max": "big")", "max is 'big', expected a number, nan, inf or -inf"},
           {R"(, "rounding": 1)", "rounding is 1, expected 0 to 1"},
           {R"(, "rank": 0)", "is one rank's part, listed with --ranks"},
           {R"(, "recorded": [{"rank": -1, "shape": [2], "max": 2}])", "rank is -1, expected 0 or more"},
           {R"(, "recorded": [{"shape": [2], "max": 2}])", "rank"},
           {R"(, "sha256": 5)", "x"}}) {
    const auto dump = open_dump(scratch.write("x.json", listing(more)));
    EXPECT_THAT(dump->records, IsEmpty()) << more;
    EXPECT_THAT(dump->left_out, ElementsAre(HasSubstr(says))) << more;
  }
  EXPECT_THROW(open_dump(scratch.write("x.json", R"({"schema": "inspect/1", "tensors": 3})")), Error);
  EXPECT_THROW(open_dump(scratch.write("x.json", R"({"schema": "inspect/1")")), Error);
}

// RFC 1321, A.5; the check value of CRC-32 (ITU-T V.42); FIPS 180-2, B.1.
TEST(Checksum, AreThoseOfTheStandards) {
  const auto text = [](std::string_view t) {
    return Tensor(DType::uint8, {static_cast<std::int64_t>(t.size())}, std::as_bytes(std::span(t)), nullptr);
  };
  EXPECT_EQ(has_checksum(text("abc"), "md5:900150983CD24FB0D6963F7D28E17F72"), true);
  EXPECT_EQ(has_checksum(text("123456789"), "crc32:cbf43926"), true);
  EXPECT_EQ(
      has_checksum(text("abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
      true);
  EXPECT_EQ(has_checksum(text("abcdefgh"
                              "abc"),
                         "xor:0x6867666564000000"),
            true);
  EXPECT_EQ(has_checksum(text("abd"), "md5:900150983cd24fb0d6963f7d28e17f72"), false);
  EXPECT_EQ(has_checksum(text("abc"), "blake2:00"), std::nullopt);
  // Of old versions of msprobe the one of bfloat16 may be that of the tensor widened: {1, 2}, by Python's
  // zlib.
  const Tensor narrow = Tensor::from_values(DType::bfloat16, {2}, std::vector<double>{1, 2});
  for (const char* checksum : {"crc32:95f68a1a", "crc32:2e3fa576", "crc32(float32):2e3fa576"})
    EXPECT_EQ(has_checksum(narrow, checksum), true) << checksum;
  EXPECT_EQ(has_checksum(narrow, "crc32(float32):95f68a1a"), false);
}

}  // namespace
}  // namespace assay::inspect_listing_test
