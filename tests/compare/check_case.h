#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../dumps/scratch.h"
#include "assay/compare/calls/case.h"
#include "assay/compare/check.h"

namespace assay {

inline const std::filesystem::path all_cases = std::filesystem::path(ASSAY_TEST_DATA) / "cases";

inline CheckOptions check_options(std::vector<std::string> policies = {"derived"}) {
  CheckOptions o;
  for (const std::string& p : policies) o.policies.push_back(load_policy(p));
  return o;
}

/// One small case: y = x w^T, gradients included, copied where it may be changed.
class Check : public testing::Test {
 protected:
  Check() {
    std::filesystem::copy(all_cases / "matmul" / "trans_both", folder_);
    const Case c = load_case(folder_);
    golden_ = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
    std::ifstream file(folder_ / "case.json");
    json_ = nlohmann::json::parse(file);
  }
  void save() const { std::ofstream(folder_ / "case.json") << json_; }

  // The only finding of a case that is trouble as a whole.
  std::string trouble() const {
    save();
    const Report report = check({folder_}, check_options());
    EXPECT_EQ(report.exit_status(), 2);
    EXPECT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings.front().verdict, Verdict::unreadable);
    const std::string why = report.findings.front().reason;
    EXPECT_THAT(why, testing::Not(testing::HasSubstr("\n")));
    return why;
  }

  Scratch scratch_;
  std::filesystem::path folder_ = scratch_.path() / "case";
  std::filesystem::path actual_ = scratch_.path() / "actual";
  std::vector<NamedTensor> golden_;
  nlohmann::json json_;
};

}  // namespace assay
