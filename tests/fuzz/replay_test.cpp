#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "targets.h"

// Replays what fuzzing has found (tests/data/fuzz/TARGET/*), and changes the seeds of every target a little
// at random: the same bytes on every run.
namespace assay::replay_test {
namespace {

namespace fs = std::filesystem;

const fs::path data_folder = ASSAY_TEST_DATA;

std::vector<std::byte> read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const auto* begin = reinterpret_cast<const std::byte*>(all.data());
  return {begin, begin + all.size()};
}

TEST(Fuzz, FoundFilesAreHandled) {
  const fs::path found = data_folder / "fuzz";
  if (!fs::exists(found)) GTEST_SKIP() << "fuzzing has found nothing so far";
  for (const FuzzTarget& target : fuzz_targets()) {
    if (!fs::exists(found / target.name)) continue;
    for (const auto& entry : fs::directory_iterator(found / target.name)) {
      SCOPED_TRACE(entry.path().string());
      EXPECT_NO_THROW(target.run(read(entry.path())));
    }
  }
}

class EveryTarget : public testing::TestWithParam<FuzzTarget> {};

TEST_P(EveryTarget, DamagedSeedsAreHandled) {
  constexpr int changes_per_seed = 300;
  std::mt19937_64 random(1);
  std::vector<std::vector<std::byte>> seeds = {{}};
  for (const std::string_view seed : GetParam().seeds) {
    seeds.push_back(read(data_folder / seed));
    EXPECT_FALSE(seeds.back().empty()) << seed;
  }
  for (const auto& seed : seeds) {
    const int changes = GetParam().name == "hdf5" ? 20 : changes_per_seed;  // a process each
    for (int i = 0; i < changes; ++i) {
      std::vector<std::byte> bytes = seed;
      for (std::uint64_t n = random() % 4 + 1; n-- > 0;) {
        const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
        switch (random() % 4) {
          case 0:
            bytes.resize(at);
            break;
          case 1:
            bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::byte(random() & 255));
            break;
          default:
            if (!bytes.empty())
              bytes[at] = random() % 2 == 0 ? bytes[at] ^ std::byte(1 << random() % 8) : std::byte(255);
        }
      }
      EXPECT_NO_THROW(GetParam().run(bytes)) << GetParam().name << " change " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, EveryTarget, testing::ValuesIn(fuzz_targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace assay::replay_test
