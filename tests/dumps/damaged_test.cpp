#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"
#include "read_all.h"
#include "scratch.h"

namespace assay::damaged_test {
namespace {

/// True if everything was read; false if Error was thrown. Anything else ends the test program.
bool reads(const std::filesystem::path& path) {
  try {
    read_all(path, {DType::bfloat16});
    return true;
  } catch (const Error& problem) {
    // An Error without a place does not help anyone.
    EXPECT_NE(std::string(problem.what()).find(path.stem().string()), std::string::npos) << problem.what();
    return false;
  }
}

const std::vector<std::string>& files() {
  static const std::vector<std::string> names = {"npy_f4.npy",     "npy_f8_fortran.npy", "npy_f2_v2.npy",
                                                 "npz_stored.npz", "npz_deflated.npz",   "every.safetensors",
                                                 "every.pt",       "nested.pt",          "single.pt",
                                                 "checkpoint.pt",  "nested_protocol4.pt"};
  return names;
}

TEST(Damaged, EveryCutIsAnError) {
  const Scratch scratch;
  for (const std::string& name : files()) {
    const std::string whole = read_text(samples() / name);
    ASSERT_TRUE(reads(scratch.write(name, whole)));
    const std::size_t step = std::max<std::size_t>(1, whole.size() / 150);
    for (std::size_t length = 0; length < whole.size(); length += length < 200 ? 1 : step) {
      EXPECT_FALSE(reads(scratch.write(name, std::string_view(whole).substr(0, length))))
          << name << " cut to " << length;
    }
    EXPECT_FALSE(reads(scratch.write(name, whole + "x"))) << name << " with a byte more";
  }
}

// A flipped byte may hit padding or, where there is no checksum, data; it must never do more than that.
TEST(Damaged, NoFlippedByteDoesHarm) {
  const Scratch scratch;
  std::mt19937 random(20260101);
  for (const std::string& name : files()) {
    const std::string whole = read_text(samples() / name);
    for (int i = 0; i < 400; ++i) {
      std::string changed = whole;
      const std::size_t head = i % 2 == 0 ? std::min<std::size_t>(whole.size(), 400) : whole.size();
      changed[random() % head] = static_cast<char>(random());
      reads(scratch.write(name, changed));
    }
  }
}

TEST(Damaged, Hdf5CutsAreErrors) {
  const Scratch scratch;
  const std::string whole = read_text(samples() / "user_block.h5");
  ASSERT_TRUE(reads(scratch.write("x.h5", whole)));
  for (std::size_t length = 520; length < whole.size(); length += 97) {
    EXPECT_FALSE(reads(scratch.write("x.h5", std::string_view(whole).substr(0, length)))) << length;
  }
}

void replace_in(std::string& text, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) text[at + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

// The one member of an archive: its data, its sizes and its place, each made wrong alone.
TEST(Damaged, ZipDirectoriesThatLie) {
  const Scratch scratch;
  const std::string whole = read_text(samples() / "npz_deflated.npz");
  const std::size_t member = whole.find("PK\x01\x02");
  ASSERT_NE(member, std::string::npos);
  struct Lie {
    std::size_t offset;
    std::uint32_t value;
  };
  // checksum; stored size; size smaller, larger and huge; local header elsewhere and outside
  for (const Lie& lie : {Lie{16, 0x12345678}, Lie{20, 5}, Lie{20, 0x7fffffff}, Lie{24, 1}, Lie{24, 4096},
                         Lie{24, 0x7fffffff}, Lie{42, 1}, Lie{42, 0x7fffffff}}) {
    std::string changed = whole;
    replace_in(changed, member + lie.offset, lie.value);
    EXPECT_FALSE(reads(scratch.write("x.npz", changed))) << lie.offset << " " << lie.value;
  }
}

TEST(Damaged, StoredDataHasAChecksum) {
  const Scratch scratch;
  for (const char* name : {"npz_stored.npz", "single.pt"}) {
    std::string changed = read_text(samples() / name);
    const auto dump = open_dump(samples() / name);
    const Tensor tensor = dump->read(0);
    const std::string_view data(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size());
    const std::size_t at = changed.find(data);
    ASSERT_NE(at, std::string::npos);
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(reads(scratch.write(name, changed))) << name;
  }
}

// no_crc.pt holds x, 4 by 6, so that a changed pickle is seen by its meaning and not by its checksum.
TEST(Damaged, TensorsThatLeaveTheirStorage) {
  const Scratch scratch;
  const std::string whole = read_text(samples() / "no_crc.pt");
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = whole;
    EXPECT_NE(text.find(from), std::string::npos);
    EXPECT_EQ(from.size(), to.size());
    return text.replace(text.find(from), from.size(), to);
  };
  ASSERT_TRUE(reads(scratch.write("x.pt", whole)));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"K\x04K\x06\x86", "K\x05K\x06\x86"},
                                                        {"K\x04K\x06\x86", "K\x04K\x07\x86"},
                                                        {"K\x06K\x01\x86", "K\x07K\x01\x86"},
                                                        {"K\x18", "K\x17"},
                                                        {"FloatStorage", "BoolsStorage"},
                                                        {"FloatStorage\n", "LongStorage\n\n"}}) {
    const auto path = scratch.write("x.pt", changed(from, to));
    EXPECT_TRUE(!reads(path) || open_dump(path)->records.empty()) << from;
  }
}

// Members that reach into each other or into the directory hide things from other readers.
TEST(Damaged, ZipMembersDoNotOverlap) {
  const Scratch scratch;
  const std::string whole = read_text(samples() / "npz_stored.npz");
  const std::size_t first = whole.find("PK\x01\x02"), second = whole.find("PK\x01\x02", first + 1);
  ASSERT_NE(second, std::string::npos);
  for (const auto& [more, message] :
       {std::pair{40U, "overlap"}, std::pair{1U << 20, "reaches past the data"}}) {
    std::string changed = whole;
    for (const std::size_t field : {first + 20, first + 24}) {
      const auto size = static_cast<std::uint32_t>(static_cast<unsigned char>(whole[field])) +
                        256 * static_cast<std::uint32_t>(static_cast<unsigned char>(whole[field + 1]));
      replace_in(changed, field, size + more);
    }
    const auto path = scratch.write("x.npz", changed);
    EXPECT_THAT([&] { open_dump(path); }, testing::ThrowsMessage<Error>(testing::HasSubstr(message)));
  }
}

std::string npy(std::string_view dict, std::size_t data) {
  std::string text = "\x93NUMPY";
  text += '\x01';
  text += '\0';
  text += static_cast<char>(dict.size() & 0xff);
  text += static_cast<char>(dict.size() >> 8);
  return text.append(dict).append(data, '\0');
}

TEST(Damaged, NpyHeadersThatLie) {
  const Scratch scratch;
  const auto dict = [](std::string_view descr, std::string_view shape) {
    return std::string("{'descr': ")
        .append(descr)
        .append(", 'fortran_order': False, 'shape': ")
        .append(shape)
        .append(", }\n");
  };
  EXPECT_TRUE(reads(scratch.write("x.npy", npy(dict("'<f4'", "(2, 3L)"), 24))));
  for (const auto& [descr, shape] :
       std::vector<std::pair<std::string, std::string>>{{"'<f4'", "(7,)"},
                                                        {"'<f4'", "(-6,)"},
                                                        {"'<f4'", "(4294967296, 4294967296)"},
                                                        {"'<f4'", "(4611686018427387904, 4, 0)"},
                                                        {"'<f4'", "(6"},
                                                        {"'<f4'", "6"},
                                                        {"'<f4'", "(99999999999999999999,)"},
                                                        {"'|O'", "(3,)"},
                                                        {"'<c8'", "(3,)"},
                                                        {"'<U6'", "(1,)"},
                                                        {"[('a', '<f4')]", "(6,)"},
                                                        {"'<f3'", "(8,)"},
                                                        {"'<V3'", "(8,)"},
                                                        {"''", "(6,)"},
                                                        {"'<M8'", "(3,)"},
                                                        {"'<f4", "(6,)"}}) {
    EXPECT_FALSE(reads(scratch.write("x.npy", npy(dict(descr, shape), 24)))) << descr << shape;
  }
  const std::string twice = "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (6,), }";
  EXPECT_FALSE(reads(scratch.write("x.npy", npy(twice, 24))));
  EXPECT_FALSE(reads(scratch.write("x.npy", npy("{'descr': '<f4', 'shape': (6,), }", 24))));
  EXPECT_FALSE(
      reads(scratch.write("x.npy", npy("{'descr': '<f4', 'fortran_order': 1, 'shape': (6,), }", 24))));
  EXPECT_FALSE(reads(scratch.write("x.npy", npy(std::string(65000, '{'), 24))));
}

std::string safetensors(std::string_view header, std::size_t data) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text.append(header).append(data, '\0');
}

TEST(Damaged, SafetensorsHeadersThatLie) {
  const Scratch scratch;
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_TRUE(reads(scratch.write("x.safetensors", safetensors(good, 8))));
  EXPECT_TRUE(reads(scratch.write("x.safetensors", safetensors("  " + good + "  ", 8))));
  for (
      const char* header :
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})",
       R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})",
       R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904,0],"data_offsets":[0,0]}})",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", R"({"a":[]})",
       R"({"__metadata__":{"a":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,8]}})"}) {
    EXPECT_FALSE(reads(scratch.write("x.safetensors", safetensors(header, 8)))) << header;
  }
}

}  // namespace
}  // namespace assay::damaged_test
