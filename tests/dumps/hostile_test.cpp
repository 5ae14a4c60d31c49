#include <gmock/gmock.h>
#include <hdf5.h>

#include <limits>
#include <type_traits>

#include "assay/dumps/hdf5/hdf5.h"
#include "assay/dumps/hdf5/writer.h"
#include "assay/dumps/io/claim.h"
#include "assay/dumps/npy_writer.h"
#include "assay/dumps/record/dump.h"
#include "assay/dumps/safetensors.h"
#include "assay/golden/error.h"
#include "read_all.h"
#include "scratch.h"

namespace assay::hostile_test {
namespace {

using testing::HasSubstr;

template <class T>
std::string little(T value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i)
    text += i < 8 ? static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff) : '\0';
  return text;
}

struct Member {
  std::string name, content;
  std::uint64_t claim = 0;  ///< not 0: deflated, and this long
};

// Checksums are zero, which torch allows.
std::string zip(const std::vector<Member>& members) {
  std::string text, directory;
  for (const Member& member : members) {
    const bool claims = member.claim != 0;
    const std::string method = little(claims ? 8 : 0, 2), name_size = little(member.name.size(), 2);
    const std::string stored = little(member.content.size(), 4);
    const std::string size = claims ? little(0xffffffffU, 4) : stored;
    const std::string zip64 = claims ? little(1, 2) + little(8, 2) + little(member.claim, 8) : "";
    directory += "PK\x01\x02" + little(45, 2) + little(45, 2) + little(0, 2) + method + little(0, 8) +
                 stored + size + name_size + little(zip64.size(), 2) + little(0, 10) +
                 little(text.size(), 4) + member.name + zip64;
    text += "PK\x03\x04" + little(45, 2) + little(0, 2) + method + little(0, 16) + name_size + little(0, 2) +
            member.name + member.content;
  }
  const std::string end = "PK\x05\x06" + little(0, 4) + little(members.size(), 2) +
                          little(members.size(), 2) + little(directory.size(), 4) + little(text.size(), 4) +
                          little(0, 2);
  return text + directory + end;
}

// A single tensor of float32 as torch.save writes those whose storage has no type.
std::string pt(std::size_t storage, const std::string& shape, const std::string& strides) {
  const auto word = [](const std::string& text) { return "X" + little(text.size(), 4) + text; };
  const std::string zero = std::string("K") + '\0';
  const std::string id = "(" + word("storage") + "ctorch\nUntypedStorage\n" + word("0") + word("cpu") + "K" +
                         little(storage, 1) + "tQ";
  const std::string pickle = "\x80\x02" + ("ctorch._utils\n_rebuild_tensor_v3\n(" + id) + zero + shape +
                             strides + "\x89" + "ccollections\nOrderedDict\n)R" + "ctorch\nfloat32\n" + "tR.";
  return zip({{"x/data.pkl", pickle, 0},
              {"x/byteorder", "big", 0},
              {"x/data/0", std::string("\x3f\x80\0\0\x40\0\0\0", 8).substr(0, storage), 0}});
}

TEST(Hostile, AStorageIsAWholeNumberOfElements) {
  const Scratch scratch;
  const auto good = open_dump(scratch.write("good.pt", pt(8, "K\x02\x85", "K\x01\x85")));
  EXPECT_THAT(good->read(0).values(), testing::ElementsAre(1, 2));
  expect_error(scratch.write("odd.pt", pt(7, "K\x01\x85", "K\x01\x85")), "whole number");
}

// The strides of a dense tensor of this shape do not fit 64 bits, though it has no elements.
TEST(Hostile, AnEmptyTensorHasExtentsThatCanBeMultiplied) {
  const Scratch scratch;
  const std::string huge = std::string("\x8a\x08\0\0\0\0\0\0\0\x40", 10);
  const std::string zero = std::string("K") + '\0';
  const auto path = scratch.write("empty.pt", pt(8, zero + huge + huge + "\x87", "K\x01K\x01K\x01\x87"));
  expect_error(path, "do not fit its storage");
}

std::filesystem::path assay_dump(const Scratch& scratch, std::string_view fields) {
  scratch.write("run/manifest.json",
                R"({"format":"assay-dump","version":1,"world_size":1,"mesh":{"dims":["tp"],"shape":[1]}})");
  const std::string header = R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  scratch.write("run/rank00000.safetensors", little(header.size(), 8) + header + std::string(4, '\0'));
  std::string line = R"({"seq":0,"step":0,"module":"m","dtype":"float32","shape":[],)";
  line.append(fields).append("\"data\":{\"file\":\"rank00000.safetensors\",\"name\":\"t\"}}\n");
  scratch.write("run/rank00000.jsonl", line);
  return scratch.path() / "run";
}

TEST(Hostile, IndexNumbersAreInRange) {
  const Scratch scratch;
  EXPECT_EQ(open_dump(assay_dump(scratch, R"("micro_batch":9007199254740992,"call":-1,)"))->records.size(),
            1U);
  for (const char* field : {R"("micro_batch":-2,)", R"("micro_batch":9007199254740993,)", R"("call":-2,)",
                            R"("call":9223372036854775807,)", R"("count":-9223372036854775808,)"}) {
    expect_error(assay_dump(scratch, field), "expected -1 to");
  }
}

TEST(Hostile, NamesHaveALimit) {
  const Scratch scratch;
  const std::string fits(4096, 'n'), longer(4097, 'n');
  EXPECT_NO_THROW(open_dump(assay_dump(scratch, R"("arg":")" + fits + "\",")));
  expect_error(assay_dump(scratch, R"("arg":")" + longer + "\","), "4097 characters");
  expect_error(assay_dump(scratch, R"("op":")" + longer + "\","), "4097 characters");
  const std::string header = R"({")" + longer + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  expect_error(scratch.write("x.safetensors", little(header.size(), 8) + header), "4097 characters");
  std::string npz = zip({{longer + ".npy", read_text(samples() / "npy_empty.npy"), 0}});
  expect_error(scratch.write("x.npz", npz), "4097 characters");
}

TEST(Hostile, AttributesAreAnObjectOfSomeLength) {
  const Scratch scratch;
  EXPECT_EQ(open_dump(assay_dump(scratch, R"("attributes": {"dim": 1},)"))->records.front().attributes,
            R"({"dim":1})");
  EXPECT_EQ(open_dump(assay_dump(scratch, R"("attributes":null,)"))->records.front().attributes, "");
  expect_error(assay_dump(scratch, R"("attributes":[1],)"), "attributes is an array, expected an object");
  const std::string longer = R"x("attributes":{"equation":")x" + std::string(4096, 'i') + R"x("},)x";
  expect_error(assay_dump(scratch, longer), "the attributes have 4111 characters, expected at most 4096");
}

TEST(Hostile, MembersThatClaimTooMuchAreRefused) {
  const Scratch scratch;
  const std::uint64_t stored = 8'500'000;  // deflate could reach this claim, just
  expect_error(scratch.write("x.npz", zip({{"x.npy", std::string(stored, '\0'), 1031 * stored}})),
               "member 'x.npy': claims");
}

// A file with holes has any size for nothing, and a dataset that was never written reads as zeros.
TEST(Hostile, DatasetsThatClaimTooMuchAreRefused) {
  const Scratch scratch;
  for (const auto& [chunk, reason] :
       {std::pair{hsize_t{1} << 10, "dataset 'x': has more than 1000000 chunks"},
        {hsize_t{1} << 26, "dataset 'x': claims"}}) {
    const auto path = scratch.path() / "x.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t extent = hsize_t{1} << 42;
    const hid_t space = H5Screate_simple(1, &extent, nullptr), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 1, &chunk);
    H5Dclose(H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, plist, H5P_DEFAULT));
    H5Pclose(plist);
    H5Sclose(space);
    H5Fclose(file);
    std::filesystem::resize_file(path, std::uintmax_t{8} << 30);
    expect_error(path, reason);
  }
}

TEST(Hostile, MemoryThatIsNotThereIsAnError) {
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT([&] { allocate_claim(all, all, "file: tensor"); },
              testing::ThrowsMessage<Error>(HasSubstr("file: tensor: needs 18446744073709551615 bytes")));
  EXPECT_THAT([&] { within_memory(8, "file: tensor", []() -> int { throw std::bad_alloc(); }); },
              testing::ThrowsMessage<Error>(HasSubstr("file: tensor: needs 8 bytes")));
}

TEST(Hostile, FilesThatOthersPointIntoAreNotCopied) {
  EXPECT_FALSE(std::is_copy_constructible_v<Hdf5File> || std::is_copy_assignable_v<Hdf5File>);
  EXPECT_FALSE(std::is_copy_constructible_v<SafetensorsFile> || std::is_copy_assignable_v<SafetensorsFile>);
  EXPECT_FALSE(std::is_copy_assignable_v<Dump>);
}

TEST(Hints, NpyReadsBackWhatItsWriterStores) {
  const Scratch scratch;
  for (const DType dtype : {DType::tfloat32, DType::hfloat32, DType::bfloat16, DType::float8_e4m3fn}) {
    const Tensor tensor = Tensor::from_values(dtype, {2}, std::vector<double>{1.5, -2});
    const auto path = scratch.path() / "x.npy";
    write_npy(path, tensor);
    const auto dump = open_dump(path, {dtype});
    EXPECT_EQ(dump->records[0].dtype, dtype);
    EXPECT_EQ(dump->read(0).dtype(), dtype);
    EXPECT_EQ(dump->read(0).values(), tensor.values());
  }
}

TEST(Hints, Hdf5TakesThemToo) {
  const Scratch scratch;
  const auto path = scratch.path() / "x.h5";
  for (const DType dtype : {DType::bfloat16, DType::float8_e5m2, DType::tfloat32}) {
    const Tensor tensor = Tensor::from_values(dtype, {2}, std::vector<double>{1.5, -2});
    Hdf5Writer writer(path);
    writer.write("/x", tensor);
    writer.write("/index", Tensor::from_indices({1}, std::vector<std::int64_t>{7}));
    writer.close();
    const auto dump = open_dump(path, {dtype});
    ASSERT_EQ(dump->records.size(), 2U);
    EXPECT_EQ(dump->records[0].dtype, DType::int64);
    EXPECT_EQ(dump->records[1].dtype, dtype);
    EXPECT_EQ(dump->read(1).dtype(), dtype);
    EXPECT_EQ(dump->read(1).values(), tensor.values());
  }
}

// Token indices are no bits of something else.
TEST(Hints, WideIntegersKeepTheirType) {
  const Scratch scratch;
  EXPECT_EQ(open_dump(samples() / "npy_i4_big_endian_fortran.npy", {DType::tfloat32})->records[0].dtype,
            DType::int32);
}

}  // namespace
}  // namespace assay::hostile_test
