#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
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

/// The first of that module and slot.
inline const Finding& finding(const Report& report, const std::string& module, const std::string& slot) {
  return *std::ranges::find_if(report.findings,
                               [&](const Finding& x) { return x.id.module == module && x.id.slot == slot; });
}

/// A result of an operator in float32.
inline Tensor output(std::string_view op, const std::vector<NamedTensor>& inputs,
                     const Attributes& attributes, std::string_view name) {
  return single(output_named(compute_golden(find_operator(op), inputs, attributes, Level::fp64), name));
}

}  // namespace assay
