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
  const Scratch folder;
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
  const Scratch folder;
  // sha256 of 1, 2, 3 as int64, little-endian, by Python's hashlib: numpy.array([1, 2, 3]).tobytes()
  const std::string text = R"({"format": "assay-batches", "version": 1, "samples": [["@"]]})";
  std::string with = text;
  with.replace(with.find('@'), 1, "e2e2033ae7e19d680599d4eb0a1359a2b48ec5baac75066c317fbf85159c54ef");
  EXPECT_EQ(difference_of(given({1, 2, 3}, {1, 3}), *open_side(folder.write("batches.json", with)).batches),
            "");
}

// As numpy would write it: dtype 8 is uint16, 4 int32.
std::string indexed(const Scratch& folder, const std::string& name, std::uint8_t code,
                    const std::vector<std::vector<int>>& sequences) {
  const auto number = [](std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t k = 0; k < bytes; ++k) text += static_cast<char>(value >> (8 * k));
    return text;
  };
  const std::size_t size = code == 8 ? 2 : 4;
  std::string bin, lengths, pointers;
  for (const auto& sequence : sequences) {
    lengths += number(sequence.size(), 4);
    pointers += number(bin.size(), 8);
    for (const int token : sequence) bin += number(static_cast<std::uint64_t>(token), size);
  }
  folder.write(name + ".bin", bin);
  return folder.write(name + ".idx", std::string("MMIDIDX\0\0", 9) + number(1, 8) + number(code, 1) +
                                         number(sequences.size(), 8) + number(1, 8) + lengths + pointers +
                                         number(0, 8));
}

TEST(BatchesOfTokens, AnIndexedDatasetIsOneBatchOfItsSequences) {
  const Scratch folder;
  const std::string a = indexed(folder, "a", 8, {{1, 2, 3}, {40000, 5}, {6}}),
                    same = indexed(folder, "b", 4, {{1, 2, 3}, {40000, 5}, {6}}),
                    shuffled = indexed(folder, "c", 4, {{40000, 5}, {1, 2, 3}, {6}}),
                    other = indexed(folder, "d", 4, {{1, 2, 3}, {40000, 7}, {6}});
  EXPECT_EQ(to_string(read_indexed(a)), "1 batches of 3 samples");
  EXPECT_EQ(difference_of(read_indexed(a), read_indexed(same)), "");
  EXPECT_EQ(difference_of(read_indexed(a), read_indexed(shuffled)),
            "first in batch 0: the same samples in another order");
  EXPECT_THAT(difference_of(read_indexed(a), read_indexed(other)),
              HasSubstr("sample 1: 1 of 2 tokens differ, first at 1: 5 | 7"));
  folder.write("a.bin", "12");
  EXPECT_THAT([&] { read_indexed(a); }, ThrowsMessage<Error>(HasSubstr("a sequence of the index")));
  EXPECT_THAT([&] { read_indexed(folder.write("e.idx", std::string(40, 'x'))); },
              ThrowsMessage<Error>(HasSubstr("is no index of Megatron-LM")));
}

TEST(BatchesOfTokens, WhatIsNoneIsRefused) {
  const Scratch folder;
  const std::string file = (folder.path() / "x.npy").string();
  write_npy(file, Tensor::from_values(DType::float32, {2, 2}, std::vector<double>{1, 2, 3, 4}));
  EXPECT_THAT([&] { read_batches(file); },
              ThrowsMessage<Error>(HasSubstr("is float32 [2, 2]; expected integers")));
  EXPECT_THAT([&] { open_side(folder.write("b.json", R"({"format": "assay-batches", "version": 2})")); },
              ThrowsMessage<Error>(HasSubstr("is version 2")));
}

}  // namespace
}  // namespace assay::config::batches_test
