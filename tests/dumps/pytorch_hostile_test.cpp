#include <gmock/gmock.h>

#include "assay/dumps/json.h"
#include "assay/dumps/merge.h"
#include "assay/golden/error.h"
#include "scratch.h"

namespace assay {
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
  EXPECT_THAT(outcome(folder), HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace assay
