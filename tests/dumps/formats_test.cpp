#include <fmt/core.h>
#include <gmock/gmock.h>

#include <limits>
#include <map>
#include <optional>

#include "assay/dumps/io/json.h"
#include "assay/dumps/layout/merge.h"
#include "assay/golden/error.h"
#include "read_all.h"
#include "scratch.h"

namespace assay::formats_test {
namespace {

using testing::HasSubstr;

// Every sample was written by the library that defines its format; expected.json holds the bits it wrote.
std::string full_name(const Identity& id) {
  if (id.phase == Phase::none && id.slot.empty()) return id.module;
  const std::string micro_batch = id.micro_batch == -1 ? "" : fmt::format("|{}", id.micro_batch);
  return fmt::format("{}|{}|{}|{}|{}|{}{}", id.module, name(id.phase), id.slot, id.arg, id.call, id.step,
                     micro_batch);
}

std::string hex(const Tensor& tensor) {
  std::string text;
  for (const std::byte b : tensor.bytes()) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

struct Found {
  DType dtype = DType::float32;
  Shape shape;
  std::optional<std::string> bits;
  const Record* record = nullptr;
};

double number(const Json& json) {
  if (!json.is_string()) return json.number().value();
  const std::string& text = json.string("number");
  const double size =
      text == "nan" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  return text == "-inf" ? -size : size;
}

void expect_statistic(const Json& expected, const char* key, const std::optional<double>& found) {
  const Json* value = expected.find(key);
  ASSERT_EQ(value != nullptr, found.has_value()) << key;
  if (value != nullptr) {
    EXPECT_THAT(*found, testing::NanSensitiveDoubleEq(number(*value))) << key;
  }
}

void expect_recorded(const Json& expected, const Record& record) {
  EXPECT_FALSE(record.has_bits);
  const Statistics found = record.statistics.value_or(Statistics{});
  const Json& statistics = expected.at("statistics", "");
  expect_statistic(statistics, "min", found.min);
  expect_statistic(statistics, "max", found.max);
  expect_statistic(statistics, "mean", found.mean);
  expect_statistic(statistics, "l2", found.l2);
  EXPECT_EQ(record.checksum, expected.at("checksum", "").string(""));
}

std::map<std::string, Found> merged_tensors(const Dump& dump) {
  std::map<std::string, Found> found;
  for (const LogicalTensor& t : logical_tensors(dump)) {
    Found& f = found[full_name(t.id)];
    f = {t.dtype, t.shape, {}, &dump.records[t.records[0]]};
    if (without_bits(dump, t) == nullptr) f.bits = hex(merge(dump, t).tensor.whole());
  }
  return found;
}

std::map<std::string, Found> recorded_tensors(const Dump& dump, const std::filesystem::path& folder) {
  std::map<std::string, Found> found;
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const Record& record = dump.records[i];
    Found f{record.dtype, record.shape, {}, &record};
    if (record.has_bits) {
      const Tensor tensor = dump.read(i);
      EXPECT_EQ(tensor.dtype(), record.dtype);
      EXPECT_EQ(tensor.shape(), record.shape);
      f.bits = hex(tensor);
    } else {
      EXPECT_THROW(dump.read(i), Error);
    }
    EXPECT_THAT(dump.location(i), HasSubstr(folder.string()));
    EXPECT_TRUE(found.emplace(full_name(record.id), f).second) << to_string(record.id);
  }
  return found;
}

void expect_sample(const std::filesystem::path& folder, const std::string& file, const Json& expected) {
  SCOPED_TRACE((folder / file).string());
  OpenOptions options;
  if (const Json* hint = expected.find("dtype_hint")) options.dtype_hint = parse_dtype(hint->string(file));
  const auto dump = open_dump(folder / file, options);
  const Json* notes = expected.find("notes");
  const bool may_have_notes = notes != nullptr || file.ends_with(".pt");
  if (notes != nullptr) {
    EXPECT_EQ(dump->notes.size() + dump->left_out.size(), static_cast<std::size_t>(notes->integer(file)))
        << testing::PrintToString(dump->notes) << testing::PrintToString(dump->left_out);
  }
  EXPECT_TRUE(may_have_notes || dump->notes.empty()) << dump->notes[0];
  EXPECT_TRUE(notes != nullptr || dump->left_out.empty()) << dump->left_out[0];

  const auto found =
      expected.find("merged") != nullptr ? merged_tensors(*dump) : recorded_tensors(*dump, folder);
  const Json::Object& tensors = expected.at("tensors", file).object(file);
  EXPECT_EQ(found.size(), tensors.size());
  for (const auto& [key, tensor] : tensors) {
    SCOPED_TRACE(key);
    ASSERT_TRUE(found.contains(key));
    const Found& f = found.at(key);
    EXPECT_EQ(name(f.dtype), tensor.at("dtype", key).string(key));
    EXPECT_EQ(f.shape, tensor.at("shape", key).shape(key));
    if (const Json* bits = tensor.find("bits")) {
      EXPECT_EQ(f.bits.value_or("none"), bits->string(key));
    } else {
      expect_recorded(tensor, *f.record);
    }
  }
}

// All folders of samples in tests/data, each with the script of its name.
TEST(Formats, EverySampleHasTheBitsItsWriterWrote) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ASSAY_TEST_DATA)) {
    const std::filesystem::path folder = entry.path();
    if (!folder.filename().string().ends_with("samples")) continue;
    const Json all = parse_json(read_text(folder / "expected.json"), "expected.json");
    for (const auto& [file, expected] : all.object("expected.json")) {
      ++files;
      if (const Json* error = expected.find("error")) {
        expect_error(folder / file, error->string(file));
      } else {
        expect_sample(folder, file, expected);
      }
    }
  }
  EXPECT_GT(files, 25U);
}

TEST(Formats, AreNamed) {
  for (const auto& [file, format] : std::map<std::string, std::string>{{"npy_f4.npy", "npy"},
                                                                       {"npz_stored.npz", "npz"},
                                                                       {"every.safetensors", "safetensors"},
                                                                       {"every.pt", "pt"},
                                                                       {"every.h5", "hdf5"},
                                                                       {"folder", "folder"},
                                                                       {"msprobe", "msprobe"},
                                                                       {"assay_dump", "assay-dump"}}) {
    EXPECT_EQ(open_dump(samples() / file)->format, format);
  }
}

TEST(Formats, StoredTensorsAreNotCopied) {
  for (const char* file :
       {"npy_f4.npy", "npz_stored.npz", "every.safetensors", "every.pt", "user_block.h5"}) {
    const auto dump = open_dump(samples() / file);
    EXPECT_EQ(dump->read(0).bytes().data(), dump->read(0).bytes().data()) << file;
  }
}

TEST(Formats, ATensorOutlivesItsDump) {
  Tensor tensor;
  { tensor = open_dump(samples() / "every.safetensors")->read(0); }
  EXPECT_NO_THROW(tensor.values());
}

TEST(Formats, OpaqueNumpyTypesNeedAHint) {
  expect_error(samples() / "npy_bf16.npy", "--dtype-hint");
  expect_error(samples() / "npy_e4m3.npy", "--dtype-hint");
  expect_error(samples() / "npy_e4m3.npy", "--dtype-hint", {DType::bfloat16});  // of another size
  EXPECT_EQ(open_dump(samples() / "npy_bf16_as_u2.npy")->records[0].dtype, DType::uint16);
}

TEST(Formats, UnknownContentIsAnError) {
  const Scratch scratch;
  expect_error(scratch.path() / "absent", "no such file");
  expect_error(scratch.write("text.npy", "hello"), "no known format");
  expect_error(scratch.write("empty", ""), "no known format");
  std::filesystem::create_directory(scratch.path() / "nothing");
  expect_error(scratch.path() / "nothing", "no readable file");
}

TEST(Formats, APathFromAFileStaysInItsFolder) {
  const Scratch scratch;
  std::filesystem::copy(samples() / "assay_dump", scratch.path() / "dump");
  const std::string index = read_text(scratch.path() / "dump/rank00000.jsonl");
  for (const char* name : {"../dump/rank00000.safetensors", "/etc/passwd", ".."}) {
    std::string changed = index;
    const std::string from = "rank00000.safetensors";
    for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos;
         at += std::string(name).size()) {
      changed.replace(at, from.size(), name);
    }
    scratch.write("dump/rank00000.jsonl", changed);
    expect_error(scratch.path() / "dump", "expected letters, digits");
  }
  scratch.write("dump/rank00000.jsonl", index);
  std::filesystem::rename(scratch.path() / "dump/rank00000.safetensors",
                          scratch.path() / "moved.safetensors");
  std::filesystem::create_symlink(scratch.path() / "moved.safetensors",
                                  scratch.path() / "dump/rank00000.safetensors");
  EXPECT_THROW(open_dump(scratch.path() / "dump"), Error);
}

TEST(Formats, AMissingRankIsAnError) {
  const Scratch scratch;
  std::filesystem::copy(samples() / "assay_dump", scratch.path() / "dump");
  std::filesystem::remove(scratch.path() / "dump/rank00001.jsonl");
  expect_error(scratch.path() / "dump", "rank 1 of 2 has no file");
}

TEST(Formats, MsprobeMustAgreeWithItsFiles) {
  const Scratch scratch;
  std::filesystem::copy(samples() / "msprobe", scratch.path() / "run",
                        std::filesystem::copy_options::recursive);
  const auto json = scratch.path() / "run/step0/proc4711/dump.json";
  std::string text = read_text(json);
  text.replace(text.find("torch.float32"), 13, "torch.float16");
  scratch.write("run/step0/proc4711/dump.json", text);
  const auto dump = open_dump(scratch.path() / "run");
  EXPECT_THROW(dump->read(0), Error);
  EXPECT_NO_THROW(dump->read(1));
  EXPECT_EQ(open_dump(samples() / "msprobe/step1")->records[0].id.step, 1);
  EXPECT_EQ(open_dump(samples() / "msprobe/step1/proc4711")->records[0].id.step, 1);
}

}  // namespace
}  // namespace assay::formats_test
