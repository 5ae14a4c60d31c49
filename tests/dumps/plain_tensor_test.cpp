#include "assay/dumps/record/plain_tensor.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "assay/dumps/npy_writer.h"
#include "assay/dumps/record/dump.h"
#include "assay/dumps/safetensors_writer.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::plain_tensor_test {
namespace {

Identity plain(std::string module) {
  Identity id;
  id.module = std::move(module);
  return id;
}

TEST(PlainName, SaysWhatIsNotUsual) {
  EXPECT_EQ(plain_name(plain("layers.0/w")), "layers.0/w");
  EXPECT_EQ(plain_name({3, 1, Phase::backward, "m", "grad", "w", 2}),
            "m@step=3,micro_batch=1,phase=backward,slot=grad,arg=w,call=2");
  EXPECT_EQ(plain_name({0, -1, Phase::forward, "m", "output", "a,b@c%", 0}),
            "m@phase=forward,slot=output,arg=a%2Cb%40c%25");
}

// Names that are not written by plain_name, or not in its spelling, are modules.
TEST(PlainName, OtherNamesStayAsTheyAre) {
  for (const char* name : {"m",
                           "",
                           "@",
                           "m@",
                           "m@x",
                           "m@step=0",
                           "m@step=01",
                           "m@step=+1",
                           "m@step=x",
                           "m@step=",
                           "m@step=-2",
                           "m@step=9007199254740993",
                           "m@step=99999999999999999999",
                           "m@call=1,step=1",
                           "m@step=1,step=1",
                           "m@step=1,",
                           "m@,step=1",
                           "m@slot=",
                           "m@slot=foo",
                           "m@phase=none",
                           "m@phase=",
                           "m@arg=",
                           "m@arg=%2c",
                           "m@arg=%",
                           "m@arg=%41",
                           "m@name",
                           "@name",
                           "m@STEP=1",
                           "user@host",
                           "step=1"}) {
    EXPECT_EQ(parse_plain_name(name), plain(name));
    EXPECT_EQ(parse_plain_name(plain_name(plain(name))), plain(name));
  }
}

TEST(PlainName, NoTwoIdentitiesShareOne) {
  std::mt19937 random(20260101);
  const std::string words[] = {"",    "m",   "@", "m@step=1", "m@name", "x@slot=grad,arg=a",
                               "a,b", "%2C", "%", "@name",    "/"};
  const std::string slots[] = {"", "grad", "output"};
  std::set<std::string> names;
  std::set<Identity> ids;
  for (int i = 0; i < 20'000; ++i) {
    const Identity id{static_cast<std::int64_t>(random() % 2),
                      static_cast<std::int64_t>(random() % 2) - 1,
                      static_cast<Phase>(random() % 3),
                      words[random() % std::size(words)] + words[random() % std::size(words)],
                      slots[random() % std::size(slots)],
                      words[random() % std::size(words)],
                      static_cast<std::int64_t>(random() % 2)};
    EXPECT_EQ(parse_plain_name(plain_name(id)), id) << plain_name(id);
    names.insert(plain_name(id));
    ids.insert(id);
  }
  EXPECT_EQ(names.size(), ids.size());
}

TEST(PlainWriter, SafetensorsAreAlignedAndInOrder) {
  const Scratch scratch;
  std::vector<PlainTensor> tensors;
  for (const DType dtype : all_dtypes) {
    const std::string name(assay::name(dtype));
    tensors.push_back({name, dtype, {3}, [dtype] {
                         return Tensor::from_values(dtype, {3}, std::vector<double>{0, 1, 1});
                       }});
  }
  write_safetensors(scratch.path() / "x.safetensors", tensors);
  const auto dump = open_dump(scratch.path() / "x.safetensors");
  ASSERT_EQ(dump->records.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(dump->records[i].id.module, tensors[i].name);
    EXPECT_EQ(dump->records[i].shape, tensors[i].shape);
    const Tensor tensor = dump->read(i);
    EXPECT_TRUE(std::ranges::equal(tensor.bytes(), tensors[i].read().bytes()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes().data()) % size_of(tensor.dtype()), 0U);
  }
  const auto hinted = open_dump(scratch.path() / "x.safetensors", {DType::hfloat32});
  EXPECT_EQ(hinted->records[1].dtype, DType::hfloat32);  // float32
  EXPECT_EQ(hinted->read(1).dtype(), DType::hfloat32);
  EXPECT_EQ(hinted->records[0].dtype, DType::float64);
}

// As safetensors 0.8 writes torch's float4_e2m1fn_x2: F4, two in a byte, a shape that counts both.
TEST(PlainWriter, PairsOfFloat4ShareAByte) {
  const Scratch scratch;
  const std::vector<double> values = {0.5, -6, 1, 1.5, 4, -0.5};
  const Tensor tensor = Tensor::from_values(DType::float4_e2m1fn, {3, 2}, values);
  const PlainTensor plain = {"x", DType::float4_e2m1fn, {3, 2}, [=] { return tensor; }};
  const auto path = scratch.path() / "x.safetensors";
  write_safetensors(path, {&plain, 1});
  const std::string text = read_text(path);
  EXPECT_NE(text.find(R"("dtype":"F4","shape":[3,2],"data_offsets":[0,3])"), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 3), "\xf1\x32\x96");
  const auto dump = open_dump(path);
  ASSERT_EQ(dump->records.size(), 1U);
  EXPECT_EQ(dump->records.front().dtype, DType::float4_e2m1fn);
  EXPECT_EQ(dump->read(0).values(), values);
}

TEST(PlainWriter, ATensorThatCannotBeReadLeavesNoFile) {
  const Scratch scratch;
  const std::vector<PlainTensor> tensors = {
      {"a", DType::float32, {1}, [] { return Tensor(DType::float32, {1}); }},
      {"b", DType::float32, {1}, []() -> Tensor { throw Error("b: unreadable"); }}};
  EXPECT_THROW(write_safetensors(scratch.path() / "x.safetensors", tensors), Error);
  EXPECT_THROW(write_npy_folder(scratch.path() / "x", tensors), Error);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace assay::plain_tensor_test
