#include <gmock/gmock.h>
#include <sys/resource.h>

#include "assay/dumps/io/json.h"
#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "read_all.h"
#include "scratch.h"

namespace assay::hostile_files_test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

long peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void expect_refused(const fs::path& path, const Json& lie) {
  SCOPED_TRACE(path.string());
  OpenOptions options;
  if (const Json* raw = lie.find("raw")) options.raw = parse_raw(raw->string("raw"));
  const std::string& part = lie.at("error", "expected.json").string("expected.json");
  EXPECT_THAT(
      [&] { read_all(path, options); },
      testing::ThrowsMessage<Error>(testing::AllOf(HasSubstr(part), HasSubstr(path.parent_path().string()))));
}

// tests/data/files_hostile.py wrote them.
TEST(HostileFiles, EachIsOneClearError) {
  const fs::path folder = fs::path(ASSAY_TEST_DATA) / "hostile/files";
  const Json all = parse_json(read_text(folder / "expected.json"), "expected.json");
  const long before = peak_kib();
  for (const auto& [file, lie] : all.object("expected.json")) {
    ASSERT_TRUE(exists(folder / file)) << file;
    expect_refused(folder / file, lie);
  }
  EXPECT_GE(all.object("expected.json").size(), 150U);
  EXPECT_LT(peak_kib() - before, 64 * 1024);
}

template <class T>
std::string little(T value) {
  std::string text;
  for (std::size_t i = 0; i < sizeof(T); ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// A million levels would end a reader that calls itself.
TEST(HostileFiles, NestingCostsNoStack) {
  const Scratch scratch;
  const auto u32 = [](std::uint32_t v) { return little(v); };
  const auto u64 = [](std::uint64_t v) { return little(v); };
  std::string arrays;
  for (int i = 0; i < 1'000'000; ++i) arrays += u32(9) + u64(1);
  const std::string head = "GGUF" + u32(3) + u64(0) + u64(1) + u64(1) + "k" + u32(9);
  EXPECT_TRUE(open_dump(scratch.write("x.gguf", head + arrays + u32(0) + u64(1) + "x"))->records.empty());
  EXPECT_THROW(open_dump(scratch.write("y.gguf", head + arrays)), Error);

  const std::string deep = "{\"x\":" + std::string(1'000'000, '[');
  EXPECT_THROW(open_dump(scratch.write("x.safetensors", u64(deep.size()) + deep)), Error);
  EXPECT_THROW(open_dump(scratch.write("x.safetensors.index.json", deep)), Error);
}

// What npy cannot compare does not keep the other arrays of an archive from being read.
TEST(HostileFiles, ObjectsInAnArchiveAreLeftOut) {
  const auto dump = open_dump(fs::path(ASSAY_TEST_DATA) / "files_samples/mixed.npz");
  ASSERT_EQ(dump->records.size(), 1U);
  ASSERT_EQ(dump->left_out.size(), 4U);
  EXPECT_THAT(dump->left_out[0], HasSubstr("mixed.npz: objects.npy: the array holds Python objects"));
  EXPECT_THAT(dump->left_out[3], HasSubstr("mixed.npz: readme.txt: not an array"));
}

// A link beside an index leads out of the folder.
TEST(HostileFiles, AnIndexDoesNotFollowLinks) {
  const Scratch scratch;
  fs::copy(fs::path(ASSAY_TEST_DATA) / "files_samples/sharded", scratch.path() / "in");
  const fs::path shard = scratch.path() / "in/model-00002-of-00002.safetensors";
  fs::rename(shard, scratch.path() / "out.safetensors");
  fs::create_symlink(scratch.path() / "out.safetensors", shard);
  EXPECT_THAT([&] { open_dump(scratch.path() / "in"); },
              testing::ThrowsMessage<Error>(HasSubstr("model-00002-of-00002.safetensors: is a link")));
}

TEST(HostileFiles, WhatAnIndexDoesNotNameIsLeftOut) {
  const Scratch scratch;
  fs::copy(fs::path(ASSAY_TEST_DATA) / "files_samples/sharded", scratch.path() / "in");
  fs::copy(fs::path(ASSAY_TEST_DATA) / "files_samples/unaligned.safetensors", scratch.path() / "in");
  auto dump = open_dump(scratch.path() / "in");
  EXPECT_EQ(dump->records.size(), 3U);
  ASSERT_EQ(dump->left_out.size(), 1U);
  EXPECT_THAT(dump->left_out[0], HasSubstr("unaligned.safetensors: weight_map does not name this file"));
  scratch.write("in/model.safetensors.index.json",
                R"({"weight_map":{"head":"model-00002-of-00002.safetensors","x":"unaligned.safetensors"}})");
  dump = open_dump(scratch.path() / "in/model.safetensors.index.json");
  EXPECT_EQ(dump->records.size(), 2U);
  ASSERT_EQ(dump->left_out.size(), 3U);
  EXPECT_THAT(dump->left_out, testing::Contains(HasSubstr("model-00001-of-00002.safetensors: weight_map")));
}

// One of two shards: what is missing is an error of the tensors that it was part of.
TEST(HostileFiles, AMissingShardIsAnError) {
  const Scratch scratch;
  fs::copy(fs::path(ASSAY_TEST_DATA) / "files_samples/dcp", scratch.path() / "in");
  fs::remove(scratch.path() / "in/shard-00001-model-00001-of-00001.safetensors");
  const auto dump = open_dump(scratch.path() / "in");
  ASSERT_FALSE(dump->records.empty());
  for (const LogicalTensor& tensor : logical_tensors(*dump)) {
    if (tensor.id.module == "norm") continue;  // whole on each rank
    EXPECT_THAT([&] { merge(*dump, tensor); },
                testing::ThrowsMessage<Error>(HasSubstr("a rank or a part is missing")));
  }
  // A shard alone says that it is one.
  EXPECT_EQ(open_dump(scratch.path() / "in/shard-00002-model-00001-of-00001.safetensors")->notes.size(), 1U);
}

// Every cut of a GGUF file, and a byte more.
TEST(HostileFiles, EveryCutOfGgufIsAnError) {
  const Scratch scratch;
  for (const char* name : {"little.gguf", "big.gguf"}) {
    const std::string whole = read_text(fs::path(ASSAY_TEST_DATA) / "files_samples" / name);
    const std::size_t unpadded = whole.find_last_not_of('\0') + 1;
    for (std::size_t length = 0; length + 32 < unpadded; ++length) {
      EXPECT_THROW(open_dump(scratch.write("x.gguf", whole.substr(0, length))), Error) << length;
    }
    EXPECT_THROW(open_dump(scratch.write("x.gguf", whole + "x")), Error);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x80);
      try {
        read_all(scratch.write("x.gguf", changed));
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace assay::hostile_files_test
