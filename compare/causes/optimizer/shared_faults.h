#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/causes/optimizer/step_mistakes.h"
#include "assay/compare/causes/optimizer/step_origin.h"
#include "assay/compare/causes/values/parameter_groups.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Mistakes in steps: each is one failure of all parameters and steps that share it.
class SharedFaults {
 public:
  /// In the order of steps.
  /// @param parameter  empty: of a step as a whole
  void add(const StepFault&, const std::string& parameter, std::int64_t step, std::size_t finding);
  /// Fails the first finding of each mistake; the others follow from it.
  /// @param parameters  all that are stepped
  void report(std::vector<Finding>&, StepOrigins&, const std::vector<NamedShape>& parameters);

 private:
  struct Group {
    StepFault fault;  // of the first step
    std::int64_t step = 0;
    std::set<std::string> parameters;          // of the first step
    std::vector<std::size_t> first, findings;  // of the first step; of all
    double residual = 0;
  };
  static CauseParameters parameters_of(const Group&, const std::vector<NamedShape>& all);

  std::map<std::pair<Cause, std::string>, Group> groups_;
};

}  // namespace assay
