#include <gmock/gmock.h>
#include <hdf5.h>

#include <algorithm>
#include <random>

#include "assay/dumps/hdf5/windows.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::hdf5_hostile_test {
namespace {

using testing::HasSubstr;

std::filesystem::path hostile() {
  return std::filesystem::path(ASSAY_TEST_DATA) / "hostile/hdf5";
}

/// What is said of a file: the error, or those of its tensors, and what was left out.
std::string complaints(const std::filesystem::path& path) {
  std::string text;
  try {
    const auto dump = open_dump(path);
    for (const std::string& what : dump->left_out) text += what + "\n";
    for (std::size_t i = 0; i < dump->records.size(); ++i) {
      try {
        dump->read(i);
      } catch (const Error& problem) {
        text += std::string(problem.what()) + "\n";
      }
    }
  } catch (const Error& problem) {
    text += problem.what();
  }
  EXPECT_TRUE(text.empty() || text.find(path.filename().string()) != std::string::npos) << text;
  return text;
}

/// The parts of which the complaint must have one: a text, or those of several versions of the HDF5 library.
std::vector<std::string> expected_parts(const Json& expected, const std::string& file) {
  if (!expected.is_array()) return {expected.string(file)};
  std::vector<std::string> parts;
  for (const Json& part : expected.array(file)) parts.push_back(part.string(file));
  return parts;
}

TEST(Hdf5Hostile, EveryCommittedFileIsRefusedWithItsReason) {
  const Json all = parse_json(read_text(hostile() / "expected.json"), "expected.json");
  std::size_t files = 0;
  for (const auto& [file, parts] : all.object("expected.json")) {
    ++files;
    const std::string said = complaints(hostile() / file);
    EXPECT_TRUE(
        std::ranges::any_of(expected_parts(parts, file),
                            [&](const std::string& part) { return said.find(part) != std::string::npos; }))
        << file << ": " << parts.text() << ", found " << said;
  }
  EXPECT_GE(files, 50U);
}

// What can be read beside them is read: one tensor that is refused is not the whole file.
TEST(Hdf5Hostile, OtherTensorsOfTheFileAreRead) {
  const auto dump = open_dump(hostile() / "virtual_absolute.h5");
  ASSERT_EQ(dump->records.size(), 2U);
  EXPECT_THAT(dump->read(0).values(), testing::ElementsAre(0, 1, 2, 3));
}

TEST(Hdf5Hostile, OtherFilesOfTheFolderAreRead) {
  const Scratch scratch;
  std::filesystem::copy(hostile() / "tree_loop.h5", scratch.path() / "bad.h5");
  std::filesystem::copy(samples() / "user_block.h5", scratch.path() / "good.h5");
  const auto dump = open_dump(scratch.path());
  ASSERT_EQ(dump->records.size(), 1U);
  EXPECT_EQ(dump->read(0).size(), 10);
  ASSERT_EQ(dump->unreadable.size(), 1U);
  EXPECT_THAT(dump->unreadable[0], HasSubstr("bad.h5: the process that reads it was ended by signal 11"));
}

TEST(Hdf5Hostile, ASourceIsNoLink) {
  const Scratch scratch;
  std::filesystem::copy(hostile() / "virtual_missing.h5", scratch.path() / "virtual_missing.h5");
  std::filesystem::copy(hostile().parent_path().parent_path() / "hdf5_samples/part0.h5",
                        scratch.path() / "elsewhere.h5");
  std::filesystem::create_symlink(scratch.path() / "elsewhere.h5", scratch.path() / "nothing.h5");
  EXPECT_THAT(complaints(scratch.path() / "virtual_missing.h5"), HasSubstr("nothing.h5: is a link"));
}

const std::vector<std::string>& good_files() {
  static const std::vector<std::string> names = {"hdf5_samples/user_block_chunks.h5",
                                                 "hdf5_samples/virtual.h5", "hdf5_samples/part1.h5",
                                                 "samples/every.h5"};
  return names;
}

TEST(Hdf5Hostile, EveryCutIsAnError) {
  const Scratch scratch;
  for (const std::string& name : good_files()) {
    const std::string whole = read_text(std::filesystem::path(ASSAY_TEST_DATA) / name);
    for (std::size_t i = 0; i < 25; ++i) {
      const std::size_t length = whole.size() * i / 25;
      const auto path = scratch.write("x.h5", std::string_view(whole).substr(0, length));
      EXPECT_NE(complaints(path), "") << name << " cut to " << length;
    }
  }
}

// It must end in an Error or in tensors, in bounded time and whatever the library does; half of the bytes are
// hit in the first part of the file, where its structure is.
TEST(Hdf5Hostile, NoFlippedByteDoesHarm) {
  const Scratch scratch;
  std::mt19937 random(20260201);
  int refused = 0;
  for (const std::string& name : good_files()) {
    const std::string whole = read_text(std::filesystem::path(ASSAY_TEST_DATA) / name);
    for (int i = 0; i < 100; ++i) {
      std::string changed = whole;
      const std::size_t head = i % 2 == 0 ? std::min<std::size_t>(whole.size(), 2048) : whole.size();
      changed[random() % head] = static_cast<char>(random());
      if (!complaints(scratch.write("x.h5", changed)).empty()) ++refused;
    }
  }
  EXPECT_GT(refused, 40);
}

// The worker is taken for hostile: whatever it says of a dataset's chunks ends in an Error, or in places that
// lie in the file.
TEST(Hdf5Hostile, AWorkerThatLiesIsFound) {
  const auto file = MappedFile::open(std::filesystem::path(ASSAY_TEST_DATA) / "hdf5_samples/part0.h5");
  Hdf5File::Dataset dataset;
  dataset.name = "x";
  dataset.dtype = DType::float32;
  dataset.shape = {2, 6};
  const auto answer = [&](const std::vector<std::uint64_t>& numbers) {
    MessageWriter out;
    out.text(std::string(4, '\0'));
    for (const std::uint64_t number : numbers) out.number(number);
    return parse_chunks({std::as_bytes(std::span(out.bytes())), "x.h5"}, dataset, *file);
  };
  const std::vector<std::uint64_t> good = {2, 1, 6, 0, 0, 2, 0, 24, 0, 24, 24, 0};
  const Hdf5Chunks chunks = answer(good);
  EXPECT_EQ(elements_in_place(chunks, dataset), 0U);
  EXPECT_EQ(windows_of(chunks, dataset, DType::float32, file).whole().bytes().size(), 48U);
  const std::uint64_t huge = hdf5_none - 1;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::uint64_t> bad = good;
    bad[i] = huge;
    if (const bool is_mask = i == 8 || i == 11; !is_mask) {
      EXPECT_THROW(answer(bad), Error) << i;
    }
    bad.resize(i);
    EXPECT_THROW(answer(bad), Error) << i;
  }
  for (const auto& [at, value] : std::vector<std::pair<std::size_t, std::uint64_t>>{
           {0, 1}, {0, 3}, {1, 0}, {2, 5}, {5, 3}, {7, file->bytes().size()}}) {
    std::vector<std::uint64_t> bad = good;
    bad[at] = value;
    EXPECT_THROW(
        {
          const Hdf5Chunks made = answer(bad);
          windows_of(made, dataset, DType::float32, file).whole();
        },
        Error)
        << at;
  }
  // A chunk of 12 GiB for a dataset of 48 bytes: it would be decoded whole.
  EXPECT_THAT(([&] {
                answer({2, std::uint64_t{1} << 29, 6, 0, 1, hdf5_deflate, 0, 0, 1, 0, 24, 0});
              }),
              testing::ThrowsMessage<Error>(HasSubstr("dataset 'x': claims 12884901888 bytes")));
  std::vector<std::uint64_t> more = good;
  more.push_back(0);
  EXPECT_THROW(answer(more), Error);
}

// The library then gives an address that lies before the data.
TEST(Hdf5Hostile, WhatWasNeverWrittenBehindAUserBlockIsFill) {
  const Scratch scratch;
  const auto path = scratch.path() / "block.h5";
  const hid_t creation = H5Pcreate(H5P_FILE_CREATE), filled = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_userblock(creation, 512);
  const float two = 2;
  H5Pset_fill_value(filled, H5T_NATIVE_FLOAT, &two);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, H5P_DEFAULT);
  const hsize_t extent = 4;
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t dataset = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, filled, H5P_DEFAULT);
  H5Dclose(dataset), H5Sclose(space), H5Fclose(file), H5Pclose(filled), H5Pclose(creation);
  EXPECT_THAT(open_dump(path)->read(0).values(), testing::ElementsAre(2, 2, 2, 2));
}

}  // namespace
}  // namespace assay::hdf5_hostile_test
