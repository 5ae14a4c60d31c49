#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "assay/compare/causes/values/diagnosis.h"

namespace assay {

/// Normal values, the same for a seed on every machine (sums of uniform ones, no library's distribution).
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  std::vector<double> normals(std::int64_t n, double scale = 1) {
    std::vector<double> v(static_cast<std::size_t>(n));
    for (double& x : v) x = scale * normal();
    return v;
  }

 private:
  std::mt19937_64 engine_;
};

using Values = std::vector<double>;

/// Of results and gradients in training.
inline constexpr DType training_dtypes[] = {DType::float32, DType::bfloat16, DType::float16};
/// Relative, of results that were added up in another order and then stored.
inline double noise_of(DType d) {
  return d == DType::float32 ? 1e-7 : d == DType::float64 ? 1e-15 : unit_roundoff(d) / 4;
}

/// A tolerance that clean results of that dtype meet and faults do not.
inline Allowed allowed_for(DType d) {
  if (d == DType::float64) return {1e-12, 1e-12, {}};
  if (d == DType::float32) return {1e-6, 1e-5, {}};
  const double u = unit_roundoff(d);
  return {u, 4 * u, {}};
}

/// The reference in float32 or float64, the actual tensor as a fault made it: with clean rounding noise on
/// top.
struct FaultyPair {
  DType dtype = DType::float32;
  Shape shape;
  Values reference, actual;
  DiagnosisContext context = {};

  FaultyPair(DType d, Shape s, Values r, Values a)
      : dtype(d), shape(std::move(s)), reference(std::move(r)), actual(std::move(a)) {
    context.allowed = allowed_for(d);
    context.sizes = {{"tp", 2}, {"dp", 4}, {"cp", 3}, {"micro-batches", 8}};
  }
  Tensor reference_tensor() const {
    return Tensor::from_values(dtype == DType::float64 ? dtype : DType::float32, shape, reference);
  }
  Tensor actual_tensor() const { return Tensor::from_values(dtype, shape, actual); }
  FaultyPair& noise(double relative, std::uint64_t seed = 99) {
    Random random(seed);
    for (double& a : actual) a *= 1 + relative * (2 * random.uniform() - 1);
    return *this;
  }
  std::vector<Diagnosis> diagnose() const {
    return assay::diagnose(actual_tensor(), reference_tensor(), context);
  }
  std::string pattern() const { return error_pattern(actual_tensor(), reference_tensor(), context); }
};

inline Values map_index(const Values& of, const std::function<std::int64_t(std::int64_t)>& source) {
  Values out(of.size());
  for (std::size_t i = 0; i < of.size(); ++i) {
    const std::int64_t from = source(static_cast<std::int64_t>(i));
    out[i] = from < 0 ? 0 : of[static_cast<std::size_t>(from)];
  }
  return out;
}

/// "factor: actual = 2 x reference (2 = tp)"; "nothing".
inline std::string first_of(const std::vector<Diagnosis>& found) {
  return found.empty() ? "nothing" : fmt::format("{}: {}", name(found[0].cause), sentence(found[0]));
}

}  // namespace assay
