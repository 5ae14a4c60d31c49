#pragma once

#include <functional>
#include <string>
#include <vector>

#include "recorded_pair.h"

namespace assay {

/// Two runs whose tensors are judged by what they were made of.
inline Report isolated(const std::function<void(MemoryDump&, bool is_actual)>& record) {
  MemoryDump a("a"), r("r");
  record(a, true);
  record(r, false);
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  return diff(a, r, options);
}

/// The tensors in which differences were made.
inline std::vector<std::string> created(const Report& report) {
  std::vector<std::string> names;
  for (const Finding& f : report.findings) {
    if (f.origin && f.origin->kind == Origin::Kind::created)
      names.push_back(f.id.module + " " + f.id.slot + " " + f.id.arg);
  }
  return names;
}

inline Tensor single(const Tensor& t) {
  return Tensor::from_values(DType::float32, t.shape(), t.values());
}

inline Tensor with_one_wrong(const Tensor& t, double by = 1) {
  Values values = t.values();
  values[5] += by;
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

}  // namespace assay
