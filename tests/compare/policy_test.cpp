#include "assay/compare/rules/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>

#include "../dumps/scratch.h"
#include "assay/golden/error.h"

namespace assay::policy_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::pair<std::int64_t, double>> rows(const Policy& policy, DType d) {
  std::vector<std::pair<std::int64_t, double>> list;
  for (const Row& row : policy.rows_of(d)) {
    EXPECT_EQ(row.atol, row.rtol);
    list.emplace_back(row.count, row.atol);
  }
  return list;
}

using P = std::pair<std::int64_t, double>;

// Training Report of TeleChat3-MoE, Table 2.
TEST(Telechat3, IsTheTableOfTheReport) {
  const Policy p = load_policy("telechat3");
  EXPECT_EQ(p.rule, Rule::atol_rtol);
  EXPECT_THAT(p.source, HasSubstr("Table 2"));
  EXPECT_THAT(rows(p, DType::float32),
              ElementsAre(P(0, 1e-4), P(2000, 2e-4), P(10000, 4e-4), P(20000, 8e-4), P(200000, 8e-3)));
  EXPECT_THAT(rows(p, DType::float16),
              ElementsAre(P(0, 4e-3), P(2000, 0.07), P(10000, 0.1), P(20000, 0.1), P(200000, 0.2)));
}

TEST(Telechat3, SaysWhichRowsAreNotInTheReport) {
  const Policy p = load_policy("telechat3");
  for (const Row& row : p.rows) {
    const bool printed = row.dtype == DType::float32 || row.dtype == DType::float16;
    EXPECT_EQ(row.source.starts_with("Table 2"), printed) << name(row.dtype);
    EXPECT_EQ(row.source.find("derived, not in the report") != std::string::npos, !printed)
        << name(row.dtype);
  }
}

// 8 unit roundoffs, as the report grants float16, plus the growth of the float32 column; float64 scales that
// column.
TEST(Telechat3, DerivedRowsFollowTheirDerivation) {
  const Policy p = load_policy("telechat3");
  const auto& base = rows(p, DType::float32);
  for (const auto& [dtype, u] : {std::pair(DType::bfloat16, 0x1p-8), std::pair(DType::hfloat32, 0x1p-12),
                                 std::pair(DType::tfloat32, 0x1p-11)}) {
    const auto derived = rows(p, dtype);
    ASSERT_EQ(derived.size(), base.size());
    for (std::size_t i = 0; i < base.size(); ++i) {
      EXPECT_EQ(derived[i].first, base[i].first);
      EXPECT_NEAR(derived[i].second, 4e-3 * u / 0x1p-11 + base[i].second - 1e-4, 1e-9) << name(dtype);
    }
  }
  const auto wide = rows(p, DType::float64);
  ASSERT_EQ(wide.size(), base.size());
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_NEAR(wide[i].second / (base[i].second * 0x1p-29), 1, 1e-12);
  }
}

// https://docs.pytorch.org/docs/stable/testing.html, defaults of assert_close.
TEST(Torch, HasTheDefaultsOfAssertClose) {
  const Policy p = load_policy("torch");
  std::vector<std::tuple<DType, double, double>> list;
  for (const Row& row : p.rows) {
    EXPECT_EQ(row.count, 0);
    list.emplace_back(row.dtype, row.rtol, row.atol);
  }
  EXPECT_THAT(list, testing::UnorderedElementsAre(
                        std::tuple(DType::float64, 1e-7, 1e-7), std::tuple(DType::float32, 1.3e-6, 1e-5),
                        std::tuple(DType::float16, 1e-3, 1e-5), std::tuple(DType::bfloat16, 1.6e-2, 1e-5)));
}

TEST(Policies, EveryRowHasASource) {
  for (const std::string_view known : policy_names()) {
    const Policy p = load_policy(known);
    EXPECT_EQ(p.name, known);
    EXPECT_FALSE(p.source.empty()) << known;
    for (const Row& row : p.rows) EXPECT_FALSE(row.source.empty()) << known << ' ' << name(row.dtype);
    EXPECT_EQ(p.rows.empty(), p.rule != Rule::atol_rtol) << known;
  }
  EXPECT_THAT(policy_names(), ElementsAre("telechat3", "torch", "bitwise", "ascend-l0", "ascend-l1",
                                          "ascend-l2", "flash", "derived"));
}

TEST(Policies, AreInstalledAsTheyAreBuiltIn) {
  for (const std::string_view table : policy_names()) {
    if (table == "derived") continue;
    const Policy built = load_policy(table);
    const Policy file = load_policy(
        (std::filesystem::path(ASSAY_TEST_DATA) / "../../tolerance_tables" / table).string() + ".toml");
    EXPECT_EQ(built.limits.rmse, file.limits.rmse);
    ASSERT_EQ(built.rows.size(), file.rows.size());
    for (std::size_t i = 0; i < built.rows.size(); ++i) EXPECT_EQ(built.rows[i].atol, file.rows[i].atol);
  }
}

TEST(Policies, FindTheRowOfACount) {
  const Policy p = load_policy("telechat3");
  EXPECT_EQ(p.find(DType::float32, 0)->count, 0);
  EXPECT_EQ(p.find(DType::float32, 1999)->count, 0);
  EXPECT_EQ(p.find(DType::float32, 2000)->count, 2000);
  EXPECT_EQ(p.find(DType::float32, 1 << 30)->count, 200000);
  EXPECT_EQ(p.find(DType::float32, -1), nullptr);
  EXPECT_EQ(p.find(DType::int32, 5), nullptr);
}

// Each side rounds one value once: neighbours pass whichever is the reference. What is a step further does
// not where a binade begins.
TEST(Policies, AllowOneStepOfWhatIsStoredInEightBitsOrFewer) {
  const Policy p = load_policy("telechat3");
  for (const DType dtype : {DType::float8_e4m3fn, DType::float8_e5m2, DType::float4_e2m1fn}) {
    std::set<double> sorted;  // of both signs
    for (std::uint64_t code = 0; code < 256; ++code) {
      if (const double v = decode(dtype, code); std::isfinite(v)) sorted.insert(v);
    }
    const std::vector<double> numbers(sorted.begin(), sorted.end());
    const Row& row = *p.find(dtype, 0);
    const auto allows = [&](double a, double g) {
      return std::abs(a - g) <= row.atol + row.rtol * std::abs(g);
    };
    int binades = 0;
    for (std::size_t i = 0; i + 2 < numbers.size(); ++i) {
      const double g = numbers[i];
      EXPECT_TRUE(allows(numbers[i + 1], g)) << name(dtype) << ' ' << g;
      EXPECT_TRUE(allows(g, numbers[i + 1])) << name(dtype) << ' ' << g;
      if (g < 0.5 || std::exp2(std::floor(std::log2(g))) != g) continue;
      EXPECT_FALSE(allows(numbers[i + 2], g)) << name(dtype) << ' ' << g;
      ++binades;
    }
    EXPECT_GE(binades, 2) << name(dtype);
  }
}

TEST(Policies, AreExplainedInOneLine) {
  const Policy p = load_policy("telechat3"), torch = load_policy("torch");
  EXPECT_EQ(to_string(p, *p.find(DType::float32, 5000)),
            "telechat3 float32, count >= 2000: |a-g| <= 0.0002 (1+|g|)");
  EXPECT_EQ(to_string(torch, *torch.find(DType::bfloat16, 0)),
            "torch bfloat16, count >= 0: |a-g| <= 1e-05 + 0.016 |g|");
}

TEST(Policies, UnknownNamesListTheKnown) {
  try {
    load_policy("telechat");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "there is no tolerance policy 'telechat'; expected one of telechat3, torch, bitwise, "
                 "ascend-l0, ascend-l1, "
                 "ascend-l2, flash, derived, or a .toml file");
  }
}

// What is wrong with a table, and what its message must say.
struct Broken {
  const char* name;
  const char* toml;
  const char* says;
};
void PrintTo(const Broken& b, std::ostream* out) {
  *out << b.name;
}

constexpr const char* head = "name='t'\nsource='s'\nrule='atol_rtol'\n";

class BrokenTable : public testing::TestWithParam<Broken> {};

TEST_P(BrokenTable, IsOneClearError) {
  const Scratch scratch;
  std::string text = GetParam().toml;
  if (text.starts_with("[")) text.insert(0, head);
  const std::string file = scratch.write("table.toml", text);
  try {
    load_policy(file);
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(file));
    EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
    EXPECT_THAT(e.what(), HasSubstr("expected"));
    EXPECT_THAT(e.what(), Not(HasSubstr("\n")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, BrokenTable,
    testing::Values(
        Broken{"no_toml", "name = = 3", "table.toml:1"}, Broken{"empty", "", "'name' is missing"},
        Broken{"no_source", "name='t'\nrule='atol_rtol'\n", "'source' is missing"},
        Broken{"no_rule", "name='t'\nsource='s'\n", "'rule' is missing"},
        Broken{"unknown_rule", "name='t'\nsource='s'\nrule='cosine'\n", "rule 'cosine' is not known"},
        Broken{"no_rows", "name='t'\nsource='s'\nrule='atol_rtol'\n", "no [dtype] section"},
        Broken{"unknown_dtype", "[float31]\nsource='s'\ncount=[0]\ntolerance=[1]", "[float31]"},
        Broken{"integer_dtype", "[int32]\nsource='s'\ncount=[0]\ntolerance=[1]", "[int32]"},
        Broken{"no_row_source", "[float32]\ncount=[0]\ntolerance=[1]", "'source' is missing"},
        Broken{"no_count", "[float32]\nsource='s'\ntolerance=[1]", "'count' is missing"},
        Broken{"no_tolerance", "[float32]\nsource='s'\ncount=[0]", "'atol' is missing"},
        Broken{"no_rtol", "[float32]\nsource='s'\ncount=[0]\natol=[1]", "'rtol' is missing"},
        Broken{"empty_lists", "[float32]\nsource='s'\ncount=[]\ntolerance=[]", "0 counts"},
        Broken{"lengths", "[float32]\nsource='s'\ncount=[0,1]\ntolerance=[1]",
               "2 counts for 1 and 1 tolerances"},
        Broken{"first_count", "[float32]\nsource='s'\ncount=[5]\ntolerance=[1]", "first count is 5"},
        Broken{"falling_count", "[float32]\nsource='s'\ncount=[0,9,8]\ntolerance=[1,2,3]", "row 3"},
        Broken{"equal_count", "[float32]\nsource='s'\ncount=[0,0]\ntolerance=[1,2]", "row 2"},
        Broken{"falling_tolerance", "[float32]\nsource='s'\ncount=[0,9]\ntolerance=[2,1]", "row 2"},
        Broken{"negative", "[float32]\nsource='s'\ncount=[0]\ntolerance=[-1]", "'tolerance'"},
        Broken{"nan", "[float32]\nsource='s'\ncount=[0]\ntolerance=[nan]", "'tolerance'"},
        Broken{"infinite", "[float32]\nsource='s'\ncount=[0]\ntolerance=[inf]", "'tolerance'"},
        Broken{"text", "[float32]\nsource='s'\ncount=[0]\ntolerance=['1e-3']", "'tolerance'"},
        Broken{"fraction_of_a_count", "[float32]\nsource='s'\ncount=[0,2000.5]\ntolerance=[1,2]", "2000.5"},
        Broken{"count_beyond_integers", "[float32]\nsource='s'\ncount=[0,1e300]\ntolerance=[1,2]", "1e+300"},
        Broken{"both_forms", "[float32]\nsource='s'\ncount=[0]\ntolerance=[1]\natol=[1]", "'atol'"},
        Broken{"twice",
               "[float32]\nsource='s'\ncount=[0]\ntolerance=[1]\n[fp32]\nsource='s'\ncount=[0]\ntolerance=["
               "1e-9]",
               "float32 twice"}),
    [](const auto& test) { return test.param.name; });

TEST(Policies, AFileThatIsNotThereIsOneClearError) {
  EXPECT_THROW(load_policy("/nowhere/table.toml"), Error);
}

}  // namespace
}  // namespace assay::policy_test
