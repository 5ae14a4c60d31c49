#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "faulty_pair.h"

namespace assay::error_pattern_test {
namespace {

std::string pattern(const Shape& shape, const std::function<bool(const Shape&)>& wrong) {
  Random random(21);
  const Values r = random.normals(element_count(shape));
  Values a = r;
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += wrong(unravel(static_cast<std::int64_t>(i), shape)) ? 1 + random.uniform() : 0;
  return FaultyPair(DType::float32, shape, r, a).noise(1e-7).pattern();
}

TEST(ErrorPattern, Boxes) {
  EXPECT_EQ(pattern({100, 120}, [](auto& i) { return i[0] >= 48 && i[0] < 64 && i[1] >= 80 && i[1] < 96; }),
            "rows 48..63 and columns 80..95: 256 of 256 wrong there, none elsewhere");
  EXPECT_EQ(pattern({100, 120}, [](auto& i) { return i[0] == 7; }),
            "row 7: 120 of 120 wrong there, none elsewhere");
  EXPECT_EQ(pattern({100, 120}, [](auto& i) { return i[1] >= 115; }),
            "the last 5 columns: 500 of 500 wrong there, none elsewhere");
  EXPECT_EQ(pattern({100, 120}, [](auto& i) { return i[0] < 50; }),
            "the first half of the rows (= shard 0 of 2 by tp): 6000 of 6000 wrong there, none elsewhere");
  EXPECT_EQ(pattern({4, 9, 40}, [](auto& i) { return i[1] >= 3 && i[1] < 6; }),
            "indices 3..5 (= shard 1 of 3 by cp) of dim 1: 480 of 480 wrong there, none elsewhere");
  EXPECT_EQ(pattern({100, 120}, [](auto& i) { return i[0] == 7 || i[0] == 31; }),
            "rows 7, 31: 240 of 240 wrong there, none elsewhere");
  EXPECT_EQ(pattern({999}, [](auto& i) { return i[0] >= 990; }),
            "the last 9 elements: 9 of 9 wrong there, none elsewhere");
}

TEST(ErrorPattern, Residues) {
  EXPECT_EQ(pattern({64, 30}, [](auto& i) { return i[0] % 8 == 3; }),
            "every 8th row (index = 3 mod 8): 240 of 240 wrong there, none elsewhere");
  EXPECT_EQ(pattern({30, 64}, [](auto& i) { return i[1] % 16 >= 8; }),
            "the columns with index in 8..15 mod 16: 960 of 960 wrong there, none elsewhere");
  EXPECT_EQ(pattern({30, 64}, [](auto& i) { return i[1] % 2 == 1; }),
            "every 2nd column (index = 1 mod 2): 960 of 960 wrong there, none elsewhere");
}

TEST(ErrorPattern, SomeOfABlock) {
  EXPECT_EQ(
      pattern({100, 120}, [](auto& i) { return i[0] >= 20 && i[0] < 30 && (i[0] * 7 + i[1] * 13) % 5 == 0; }),
      "rows 20..29: 240 of 1200 wrong there, none elsewhere");
}

TEST(ErrorPattern, NothingToSay) {
  EXPECT_EQ(pattern({100, 120}, [](auto&) { return false; }), "");
  EXPECT_EQ(pattern({100, 120}, [](auto&) { return true; }), "");
  EXPECT_EQ(pattern({100, 120}, [](auto& i) { return i[0] == 5 && i[1] == 9; }), "");
  for (int seed = 0; seed < 50; ++seed) {
    Random random(static_cast<std::uint64_t>(seed) + 1000);
    const int wrong = 1 + static_cast<int>(random.below(60));
    std::vector<std::int64_t> at;
    for (int k = 0; k < wrong; ++k) at.push_back(random.below(100 * 120));
    EXPECT_EQ(pattern({100, 120}, [&](auto& i) { return std::ranges::count(at, i[0] * 120 + i[1]) > 0; }), "")
        << wrong;
  }
}

}  // namespace
}  // namespace assay::error_pattern_test
