#include <fmt/core.h>
#include <gmock/gmock.h>

#include <map>

#include "assay/dumps/json.h"
#include "assay/dumps/merge.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay {
namespace {

using testing::HasSubstr;

// Every sample was written by the library that defines its format; expected.json holds the bits it wrote.
std::string full_name(const Identity& id) {
  if (id.phase == Phase::none) return id.module;
  return fmt::format("{}|{}|{}|{}|{}|{}", id.module, name(id.phase), id.slot, id.arg, id.call, id.step);
}

std::string hex(const Tensor& tensor) {
  std::string text;
  for (const std::byte b : tensor.bytes()) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

void expect_sample(const std::filesystem::path& folder, const std::string& file, const Json& expected) {
  SCOPED_TRACE((folder / file).string());
  OpenOptions options;
  if (const Json* hint = expected.find("dtype_hint")) options.dtype_hint = parse_dtype(hint->string(file));
  const auto dump = open_dump(folder / file, options);
  const Json* notes = expected.find("notes");
  const bool may_have_notes = notes != nullptr || file.ends_with(".pt");
  if (notes != nullptr) {
    EXPECT_EQ(dump->notes.size() + dump->left_out.size(), static_cast<std::size_t>(notes->integer(file)));
  }
  EXPECT_TRUE(may_have_notes || dump->notes.empty()) << dump->notes[0];
  EXPECT_TRUE(notes != nullptr || dump->left_out.empty()) << dump->left_out[0];

  std::map<std::string, Tensor> found;
  if (expected.find("merged") != nullptr) {
    for (const LogicalTensor& tensor : logical_tensors(*dump))
      found[full_name(tensor.id)] = merge(*dump, tensor).tensor;
  } else {
    for (std::size_t i = 0; i < dump->records.size(); ++i) {
      const Tensor tensor = dump->read(i);
      EXPECT_EQ(tensor.dtype(), dump->records[i].dtype);
      EXPECT_EQ(tensor.shape(), dump->records[i].shape);
      EXPECT_THAT(dump->location(i), HasSubstr(folder.string()));
      EXPECT_TRUE(found.emplace(full_name(dump->records[i].id), tensor).second)
          << to_string(dump->records[i].id);
    }
  }
  const Json::Object& tensors = expected.at("tensors", file).object(file);
  EXPECT_EQ(found.size(), tensors.size());
  for (const auto& [key, tensor] : tensors) {
    ASSERT_TRUE(found.contains(key)) << key;
    EXPECT_EQ(name(found[key].dtype()), tensor.at("dtype", key).string(key)) << key;
    EXPECT_EQ(found[key].shape(), tensor.at("shape", key).shape(key)) << key;
    EXPECT_EQ(hex(found[key]), tensor.at("bits", key).string(key)) << key;
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
        try {
          open_dump(folder / file);
          ADD_FAILURE() << file << " was opened";
        } catch (const Error& problem) {
          EXPECT_THAT(problem.what(), HasSubstr(error->string(file)));
        }
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

void expect_error(const std::filesystem::path& path, std::string_view part, const OpenOptions& options = {}) {
  try {
    const auto dump = open_dump(path, options);
    for (std::size_t i = 0; i < dump->records.size(); ++i) dump->read(i);
    ADD_FAILURE() << path << " was read";
  } catch (const Error& problem) {
    EXPECT_THAT(problem.what(), HasSubstr(part));
    EXPECT_THAT(problem.what(), HasSubstr(path.filename().string()));
  }
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
}  // namespace assay
