#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "assay/compare/named_source.h"
#include "assay/compare/rules/policy.h"
#include "assay/golden/parallel.h"
#include "assay/golden/tensor.h"

/// What calls from Python share.
namespace assay::python {

using Named = std::vector<std::pair<std::string, Tensor>>;

inline int threads_of_calls = 1;  ///< read and written with the GIL held

/// Others may use Python meanwhile.
class Computing {
  const int threads_ = threads_of_calls;
  const nanobind::gil_scoped_release release_ = {};
  const ThreadScope scope_ = ThreadScope(threads_);

 public:
  int threads() const { return threads_; }
};

inline std::vector<NamedSource> sources_of(const Named& named) {
  std::vector<NamedSource> sources;
  for (const auto& [name, tensor] : named) sources.push_back({name, tensor});
  return sources;
}

inline std::vector<Policy> policies_of(const std::vector<std::string>& tolerances) {
  std::vector<Policy> policies;
  for (const std::string& t : tolerances) policies.push_back(load_policy(t));
  return policies;
}

}  // namespace assay::python
