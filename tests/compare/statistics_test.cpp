#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "assay/compare/diff.h"
#include "assay/compare/result/finding.h"

namespace assay::statistics_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// By msprobe, of the same tensors: make_statistics.py.
Report compare(const std::string& actual, const std::string& reference,
               const std::string& policy = "telechat3", bool accept = false) {
  const std::filesystem::path folder = std::filesystem::path(ASSAY_TEST_DATA) / "statistics";
  DiffOptions options;
  options.policies = {load_policy(policy)};
  options.accept_statistics = accept;
  return diff(*open_dump(folder / actual), *open_dump(folder / reference), options);
}

std::map<std::string, std::string> reasons(const Report& report, Verdict verdict) {
  std::map<std::string, std::string> found;
  for (const Finding& f : report.findings) {
    if (f.verdict == verdict) found.emplace(f.id.module, f.reason);
  }
  return found;
}

std::vector<std::string> names(const Report& report, Verdict verdict) {
  std::vector<std::string> found;
  for (const auto& [name, reason] : reasons(report, verdict)) found.push_back(name);
  return found;
}

TEST(Statistics, MsprobesAgreeWithItsTensors) {
  for (const std::string policy : {"telechat3", "bitwise"}) {
    for (const auto& [a, r] :
         {std::pair{"statistics", "tensor"}, {"tensor", "statistics"}, {"statistics", "statistics"}}) {
      const Report report = compare(a, r, policy);
      SCOPED_TRACE(policy + ": " + a + " against " + r);
      EXPECT_EQ(report.count(Verdict::statistics_agree), 13);
      EXPECT_THAT(names(report, Verdict::not_comparable), ElementsAre("special"));
      EXPECT_THAT(names(report, Verdict::passed), ElementsAre("empty"));
      EXPECT_EQ(report.exit_status(), 1);
    }
  }
  const Report report = compare("statistics", "tensor");
  const auto agree = reasons(report, Verdict::statistics_agree);
  EXPECT_EQ(agree.at("float32"),
            "max, min, mean, l2 agree; only statistics were recorded on the actual side: the elements were "
            "not compared");
  EXPECT_THAT(agree.at("bfloat16"),
              HasSubstr("max, min agree; how far mean, l2 may be off is not known; only"));
  EXPECT_THAT(agree.at("int64"), HasSubstr("max, min agree;"));
  EXPECT_THAT(agree.at("infinite"), HasSubstr("max, min agree;"));
  EXPECT_THAT(agree.at("large"), HasSubstr("max, min, mean agree;")) << "its norm overflows in float16";
  EXPECT_EQ(reasons(report, Verdict::not_comparable).at("special"),
            "only statistics were recorded on the actual side: the sides have no number in common");
  EXPECT_EQ(report.summary(),
            "1 compared: 1 passed, 0 failed, 0 inherited; 14 not compared, 13 of them agree by statistics");
}

TEST(Statistics, EqualChecksumsPass) {
  for (const std::string policy : {"telechat3", "bitwise"}) {
    for (const auto& [a, r] : {std::pair{"md5", "tensor"}, {"tensor", "md5"}, {"md5", "md5"}}) {
      const Report report = compare(a, r, policy);
      EXPECT_EQ(report.count(Verdict::passed), 15) << policy << ": " << a << " against " << r;
      EXPECT_EQ(report.exit_status(), 0);
      EXPECT_EQ(report.findings[0].rule,
                "every bit equal, by crc32: of pairs that differ, one of 2^32 has equal ones");
    }
    for (const auto& [a, r] : {std::pair{"listing.json", "tensor"}, {"tensor", "listing.json"}}) {
      const Report report = compare(a, r, policy);
      EXPECT_EQ(report.count(Verdict::passed), 15) << policy << ": " << a << " against " << r;
      EXPECT_EQ(report.findings[0].rule, "every bit equal, by sha256");
    }
  }
}

TEST(Statistics, AnExclusiveOrIsNoProof) {
  const Report report = compare("xor", "tensor");
  EXPECT_THAT(names(report, Verdict::passed), ElementsAre("empty"));
  EXPECT_EQ(reasons(report, Verdict::statistics_agree).at("odd"),
            "xor agrees; only a checksum was recorded on the actual side: the elements were not compared");
  EXPECT_EQ(report.count(Verdict::failed), 0);
}

TEST(Statistics, OfAListingAreThoseOfMsprobe) {
  const Report report = compare("statistics", "listing.json");
  const auto agree = reasons(report, Verdict::statistics_agree);
  EXPECT_EQ(
      agree.at("float32"),
      "max, min, mean agree; only statistics were recorded on both sides: the elements were not compared");
  EXPECT_EQ(report.count(Verdict::failed), 0);
}

TEST(Statistics, FindFaults) {
  const std::vector<std::string> faults = {"bfloat16", "bool", "float16",   "float32",
                                           "infinite", "odd",  "transposed"};
  for (const char* reference : {"tensor", "statistics", "listing.json", "md5"}) {
    const Report report = compare("faulty", reference);
    EXPECT_EQ(names(report, Verdict::failed), faults) << reference;
    EXPECT_EQ(names(compare(reference, "faulty"), Verdict::failed), faults) << reference;
    EXPECT_EQ(report.first_failure()->name, report.findings[0].name);
  }
  const Report report = compare("faulty", "tensor");
  const auto failed = reasons(report, Verdict::failed);
  EXPECT_THAT(failed.at("float32"), HasSubstr("max 25.5813828 "));
  EXPECT_THAT(failed.at("float32"), HasSubstr("against 3.36280775, allowed 0.000436; min "));
  EXPECT_EQ(failed.at("odd").substr(0, 32), "max nan against 3.5, allowed 0; ");
  EXPECT_THAT(report.findings[0].statistics, testing::SizeIs(4));
  EXPECT_GT(report.findings[0].ratio, 1000);
}

TEST(Statistics, AreAcceptedAsAComparisonOnlyIfTheUserSaysSo) {
  const Report report = compare("statistics", "tensor", "telechat3", true);
  EXPECT_EQ(report.count(Verdict::passed), 14);
  EXPECT_THAT(report.findings[0].rule,
              testing::StartsWith("statistics only, as accepted: telechat3 float32"));
  EXPECT_THAT(report.findings[0].notes, ElementsAre(HasSubstr("the elements were not compared")));
  EXPECT_EQ(compare("faulty", "tensor", "telechat3", true).count(Verdict::failed), 7);
}

}  // namespace
}  // namespace assay::statistics_test
