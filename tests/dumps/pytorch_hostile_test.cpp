#include <gmock/gmock.h>

#include <random>

#include "assay/dumps/io/json.h"
#include "assay/dumps/layout/merge.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay::pytorch_hostile_test {
namespace {

using testing::HasSubstr;

// What every payload in tests/data/hostile/pytorch would create.
constexpr const char* canary = "/tmp/assay_canary_pytorch";

std::filesystem::path hostile() {
  return std::filesystem::path(ASSAY_TEST_DATA) / "hostile" / "pytorch";
}

/// All that is said about a file: the error, or the notes and what was left out.
std::string outcome(const std::filesystem::path& path) {
  try {
    const auto dump = open_dump(path);
    for (const LogicalTensor& tensor : logical_tensors(*dump)) merge(*dump, tensor);
    std::string text;
    for (const std::string& line : dump->notes) text += line + "\n";
    for (const std::string& line : dump->left_out) text += line + "\n";
    return text;
  } catch (const Error& problem) {
    return problem.what();
  }
}

TEST(PytorchHostile, EachLieIsNamedAndNothingRuns) {
  std::filesystem::remove(canary);
  const Json all = parse_json(read_text(hostile() / "expected.json"), "expected.json");
  std::size_t entries = 0;
  for (const auto& [name, part] : all.object("expected.json")) {
    SCOPED_TRACE(name);
    const std::string text = outcome(hostile() / name);
    EXPECT_THAT(text, HasSubstr(part.string(name)));
    ++entries;
  }
  EXPECT_GT(entries, 100U);
  EXPECT_FALSE(std::filesystem::exists(canary)) << "a file was able to run a command";
}

// A link beside the metadata could lead anywhere.
TEST(PytorchHostile, ACheckpointFollowsNoLinks) {
  const Scratch scratch;
  const auto folder = scratch.path() / "dcp";
  std::filesystem::copy(hostile() / "dcp_gap", folder);
  EXPECT_THAT(outcome(folder), HasSubstr("hold 8 of 9"));
  std::filesystem::rename(folder / "__0_0.distcp", scratch.path() / "elsewhere");
  std::filesystem::create_symlink(scratch.path() / "elsewhere", folder / "__0_0.distcp");
  EXPECT_THAT(outcome(folder), HasSubstr("is a link"));
}

// torch's own files without the checksums that would stop a changed pickle at the door.
std::string without_checksums(std::string archive) {
  for (std::size_t at = 0; (at = archive.find("PK\x01\x02", at)) != std::string::npos; at += 4)
    archive.replace(at + 16, 4, 4, '\0');
  return archive;
}

TEST(PytorchHostile, NoFlippedByteDoesHarm) {
  const Scratch scratch;
  std::mt19937 random(20260101);
  const auto real = std::filesystem::path(ASSAY_TEST_DATA) / "pytorch_samples";
  for (const char* name : {"stream_2.pt", "stream_4.pt", "stream_parts.pt", "tree_2.pt", "tree_4.pt",
                           "tree_5.pt", "objects.pt", "dtensor_rank1.pt", "dtensor_2d_rank0.pt"}) {
    const std::string whole = without_checksums(read_text(real / name));
    const auto path = scratch.write(name, whole);
    ASSERT_THAT(outcome(path), Not(HasSubstr("damaged"))) << name;
    // Behind the pickles lies data, which may be anything.
    const std::size_t head = std::min<std::size_t>(whole.size(), 3000);
    for (int i = 0; i < 300; ++i) {
      std::string changed = whole;
      for (int flips = i % 3; flips >= 0; --flips) changed[random() % head] = static_cast<char>(random());
      outcome(scratch.write(name, changed));
    }
  }
  std::filesystem::copy(real / "dcp", scratch.path() / "dcp");
  const std::string metadata = read_text(real / "dcp/.metadata");
  for (int i = 0; i < 300; ++i) {
    std::string changed = metadata;
    for (int flips = i % 3; flips >= 0; --flips)
      changed[random() % changed.size()] = static_cast<char>(random());
    scratch.write("dcp/.metadata", changed);
    outcome(scratch.path() / "dcp");
  }
}

TEST(PytorchHostile, EveryCutOfAStreamIsAnError) {
  const Scratch scratch;
  const std::string whole =
      read_text(std::filesystem::path(ASSAY_TEST_DATA) / "pytorch_samples" / "stream_2.pt");
  for (std::size_t length = 1; length < whole.size(); ++length) {
    const auto path = scratch.write("x.pt", std::string_view(whole).substr(0, length));
    EXPECT_THROW(open_dump(path), Error) << length;
  }
}

}  // namespace
}  // namespace assay::pytorch_hostile_test
