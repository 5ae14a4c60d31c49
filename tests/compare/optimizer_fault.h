#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/diff.h"
#include "optimizer_run.h"

namespace assay {

inline constexpr Recipe recipes[] = {Recipe::fp64, Recipe::fp32, Recipe::bf16};

inline Report diff_steps(const MemoryDump& actual, const MemoryDump& reference) {
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  return diff(actual, reference, options);
}

struct OptimizerFault {
  std::string name;
  OptimizerUnderTest actual;
  Cause cause;
  std::vector<std::string> text;  // all in the one diagnosis
  OptimizerUnderTest reference = {};
  double gradients = 1;
};

inline std::vector<Diagnosis> diagnoses_of(const Report& report) {
  std::vector<Diagnosis> all;
  for (const Finding& f : report.findings) {
    for (const Diagnosis& d : f.diagnoses) all.push_back(d);
  }
  return all;
}

inline std::vector<std::string> roots_of(const Report& report) {
  std::vector<std::string> roots;
  for (const Finding& f : report.findings) {
    if (f.verdict != Verdict::passed && f.verdict != Verdict::inherited && f.verdict != Verdict::exempt)
      roots.push_back(fmt::format("{}: {}", f.name, f.origin ? f.origin->reason : f.reason));
  }
  return roots;
}

// One root that names it, and nothing else that is not inherited from it, in a first step alone and in three.
inline void expect_named(const OptimizerFault& fault, const std::vector<int>& step_counts = {1, 3}) {
  for (const Recipe recipe : recipes) {
    for (const int steps : step_counts) {
      const std::string what =
          fmt::format("{}, recipe {}, {} steps", fault.name, static_cast<int>(recipe), steps);
      MemoryDump actual{"actual"}, reference{"reference"};
      record_steps(actual, fault.actual, recipe, steps, fault.gradients);
      record_steps(reference, fault.reference, recipe, steps, fault.gradients);
      const Report report = diff_steps(actual, reference);
      const std::vector<Diagnosis> found = diagnoses_of(report);
      ASSERT_FALSE(found.empty()) << what;
      EXPECT_EQ(found.size(), 1U) << what << ": " << name(found.back().cause) << ": "
                                  << sentence(found.back());
      EXPECT_EQ(name(found.front().cause), name(fault.cause)) << what << ": " << sentence(found.front());
      for (const std::string& text : fault.text)
        EXPECT_THAT(sentence(found.front()), testing::HasSubstr(text)) << what;
      EXPECT_THAT(roots_of(report), testing::SizeIs(1)) << what;
    }
  }
}

inline OptimizerUnderTest with(const std::function<void(OptimizerUnderTest&)>& change) {
  OptimizerUnderTest o;
  change(o);
  return o;
}

inline double total(const std::map<std::string, double>& squares) {
  double sum = 0;
  for (const auto& [name, square] : squares) sum += square;
  return sum;
}

inline bool is_expert(const std::string& name) {
  return name.find("experts") != std::string::npos;
}

}  // namespace assay
