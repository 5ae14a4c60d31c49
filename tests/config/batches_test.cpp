// The first batches of two runs: the same, shuffled, shifted by one, or other tokens.
#include "assay/config/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/dumps/io/whole_file.h"
#include "assay/dumps/npy_writer.h"
#include "assay/golden/error.h"
#include "given.h"

namespace assay::config::batches_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Batches given(const std::vector<std::int64_t>& tokens, Shape shape) {
  const GivenFolder folder;
  const std::string file = (folder.path() / "batches.npy").string();
  write_npy(file, Tensor::from_indices(std::move(shape), tokens));
  return read_batches(file);
}

const std::vector<std::int64_t> first = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

TEST(BatchesOfTokens, SaysHowTheyPart) {
  const Shape shape = {2, 2, 3};
  const Batches a = given(first, shape);
  EXPECT_EQ(to_string(a), "2 batches of 2 samples");
  EXPECT_EQ(difference_of(a, given(first, shape)), "");
  EXPECT_EQ(difference_of(a, given({1, 2, 3, 4, 5, 6, 10, 11, 12, 7, 8, 9}, shape)),
            "first in batch 1: the same samples in another order");
  EXPECT_THAT(difference_of(a, given({7, 8, 9, 4, 5, 6, 1, 2, 3, 10, 11, 12}, shape)),
              HasSubstr("batch 0, sample 0: all samples are there"));
  EXPECT_THAT(difference_of(a, given({2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12}, shape)),
              HasSubstr("shifted by one: it begins one token later"));
  EXPECT_THAT(difference_of(a, given({0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12}, shape)),
              HasSubstr("it begins one token earlier"));
  EXPECT_EQ(difference_of(a, given({1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11, 12}, shape)),
            "first in batch 0, sample 1: 1 of 3 tokens differ, first at 1: 5 | 0");
  EXPECT_THAT(difference_of(a, given({1, 2, 3, 4, 5, 6}, {1, 2, 3})),
              HasSubstr("the first 1 batches are equal; 2 | 1"));
}

TEST(BatchesOfTokens, HashesMeetTokens) {
  const GivenFolder folder;
  // sha256 of 1, 2, 3 as int64, little-endian, by Python's hashlib: numpy.array([1, 2, 3]).tobytes()
  const std::string text = R"({"format": "assay-batches", "version": 1, "samples": [["@"]]})";
  std::string with = text;
  with.replace(with.find('@'), 1, "e2e2033ae7e19d680599d4eb0a1359a2b48ec5baac75066c317fbf85159c54ef");
  EXPECT_EQ(difference_of(given({1, 2, 3}, {1, 3}), *open_side(folder.file("batches.json", with)).batches),
            "");
}

TEST(BatchesOfTokens, WhatIsNoneIsRefused) {
  const GivenFolder folder;
  const std::string file = (folder.path() / "x.npy").string();
  write_npy(file, Tensor::from_values(DType::float32, {2, 2}, std::vector<double>{1, 2, 3, 4}));
  EXPECT_THAT([&] { read_batches(file); },
              ThrowsMessage<Error>(HasSubstr("is float32 [2, 2]; expected integers")));
  EXPECT_THAT([&] { open_side(folder.file("b.json", R"({"format": "assay-batches", "version": 2})")); },
              ThrowsMessage<Error>(HasSubstr("is version 2")));
}

}  // namespace
}  // namespace assay::config::batches_test
