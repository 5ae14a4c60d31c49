#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/named_source.h"
#include "assay/compare/rules/policy.h"
#include "assay/golden/interrupt.h"
#include "assay/golden/parallel.h"
#include "assay/golden/tensor.h"

/// What calls from Python share.
namespace assay::python {

using Named = std::vector<std::pair<std::string, Tensor>>;

inline int threads_of_calls = 1;  ///< read and written with the GIL held

/// Lets a Ctrl-C end what the main thread computes; others get none.
class Signals {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(50);
    const nanobind::gil_scoped_acquire hold;
    if (PyErr_CheckSignals() != 0) nanobind::raise_python_error();
  }

 private:
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
};

/// Others may use Python meanwhile.
class Computing {
  const int threads_ = threads_of_calls;
  const nanobind::gil_scoped_release release_ = {};
  const ThreadScope scope_ = ThreadScope(threads_);
  const InterruptScope interrupt_ = InterruptScope(Signals());

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
