#pragma once

#include <optional>
#include <string_view>

#include "assay/compare/diff.h"
#include "faulty_pair.h"
#include "memory_dump.h"

namespace assay {

/// Two runs that recorded the same tensors: one right, one with a fault in it.
struct RecordedPair {
  MemoryDump actual{"actual"}, reference{"reference"};

  void add(const Identity& id, const Tensor& wrong, const Tensor& right, std::string_view op = "",
           std::optional<std::int64_t> count = {}) {
    for (MemoryDump* dump : {&actual, &reference}) {
      Record& r = dump->add(id, dump == &actual ? wrong : right);
      r.op = op;
      r.count = count;
    }
  }
  /// The same on both sides.
  void add(const Identity& id, const Tensor& both, std::string_view op = "") { add(id, both, both, op); }
  Report diff(std::string_view policy = "telechat3") const {
    DiffOptions options;
    options.policies.push_back(load_policy(std::string(policy)));
    return assay::diff(actual, reference, options);
  }
};

inline Tensor normal_tensor(DType dtype, const Shape& shape, std::uint64_t seed, double scale = 1) {
  return Tensor::from_values(dtype, shape, Random(seed).normals(element_count(shape), scale));
}

/// The same, rounded differently on the way.
inline Tensor noisy(const Tensor& t, std::uint64_t seed) {
  Random random(seed);
  Values values = t.values();
  for (double& v : values) v *= 1 + noise_of(t.dtype()) * (2 * random.uniform() - 1);
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

/// a + factor b, in the dtype of a; b is repeated for every row where it is smaller.
inline Tensor plus(const Tensor& a, double factor, const Tensor& b) {
  Values sum = a.values();
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += factor * b.value(static_cast<std::int64_t>(i) % b.size());
  return Tensor::from_values(a.dtype(), a.shape(), sum);
}

}  // namespace assay
