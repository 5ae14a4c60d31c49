#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>

#include "assay/compare/origin/local_errors.h"
#include "recorded_pair.h"

namespace assay::clean_pairs_test {
namespace {

// Right results, added up in the orders that kernels have: no failure, and no operator to blame. The kernels
// are this test's own, in float32; what they are compared with is float64, left to right.
enum class Order { sequential, reversed, pairwise, blocks, split_k };
constexpr Order orders[] = {Order::sequential, Order::reversed, Order::pairwise, Order::blocks,
                            Order::split_k};

template <class T>
T pairwise(const std::vector<T>& v, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return v[begin];
  const std::size_t middle = (begin + end) / 2;
  return pairwise(v, begin, middle) + pairwise(v, middle, end);
}

// So many terms at a time, or every such term: then the parts.
template <class T>
T in_parts(const std::vector<T>& v, std::size_t parts, bool interleaved) {
  std::vector<T> sums(parts, 0);
  for (std::size_t i = 0; i < v.size(); ++i) sums[interleaved ? i % parts : i * parts / v.size()] += v[i];
  return std::accumulate(sums.begin(), sums.end(), T(0));
}

template <class T>
T sum(std::vector<T> v, Order order) {
  if (order == Order::pairwise) return pairwise(v, 0, v.size());
  if (order == Order::blocks) return in_parts(v, (v.size() + 31) / 32, false);
  if (order == Order::split_k) return in_parts(v, 4, true);
  if (order == Order::reversed) std::reverse(v.begin(), v.end());
  return std::accumulate(v.begin(), v.end(), T(0));
}

template <class T, class F>
T sum_of(std::int64_t n, Order order, F term) {
  std::vector<T> terms;
  for (std::int64_t i = 0; i < n; ++i) terms.push_back(term(i));
  return sum(std::move(terms), order);
}

struct Inputs {
  Tensor x, w;  ///< [N, K]; [M, K] or [K]
};

template <class T>
Values linear(const Inputs& in, Order order) {
  const std::int64_t N = in.x.shape()[0], K = in.x.shape()[1], M = in.w.shape()[0];
  Values y;
  for (std::int64_t i = 0; i < N * M; ++i) {
    y.push_back(sum_of<T>(K, order, [&](std::int64_t k) {
      return static_cast<T>(in.x.value(i / M * K + k)) * static_cast<T>(in.w.value(i % M * K + k));
    }));
  }
  return y;
}

template <class T>
Values rms_norm(const Inputs& in, Order order) {
  const std::int64_t N = in.x.shape()[0], K = in.x.shape()[1];
  Values y;
  for (std::int64_t n = 0; n < N; ++n) {
    const auto x = [&](std::int64_t k) { return static_cast<T>(in.x.value(n * K + k)); };
    const T square = sum_of<T>(K, order, [&](std::int64_t k) { return x(k) * x(k); });
    const T rstd = T(1) / std::sqrt(square / static_cast<T>(K) + T(1e-5));
    for (std::int64_t k = 0; k < K; ++k) y.push_back(x(k) * rstd * static_cast<T>(in.w.value(k)));
  }
  return y;
}

template <class T>
Values softmax(const Inputs& in, Order order) {
  const std::int64_t N = in.x.shape()[0], K = in.x.shape()[1];
  Values y;
  for (std::int64_t n = 0; n < N; ++n) {
    T largest = static_cast<T>(in.x.value(n * K));
    for (std::int64_t k = 0; k < K; ++k) largest = std::max(largest, static_cast<T>(in.x.value(n * K + k)));
    const auto e = [&](std::int64_t k) { return std::exp(static_cast<T>(in.x.value(n * K + k)) - largest); };
    const T total = sum_of<T>(K, order, e);
    for (std::int64_t k = 0; k < K; ++k) y.push_back(e(k) / total);
  }
  return y;
}

template <class T>
Values reduce_sum(const Inputs& in, Order order) {
  const std::int64_t N = in.x.shape()[0], K = in.x.shape()[1];
  Values y;
  for (std::int64_t n = 0; n < N; ++n)
    y.push_back(sum_of<T>(K, order, [&](std::int64_t k) { return static_cast<T>(in.x.value(n * K + k)); }));
  return y;
}

struct Kernel {
  std::string op;
  Values (*device)(const Inputs&, Order);
  Values (*reference)(const Inputs&, Order);
  std::string_view param = "";
};
const Kernel kernels[] = {{"matmul", linear<float>, linear<double>, "weight"},
                          {"rms_norm", rms_norm<float>, rms_norm<double>, "weight"},
                          {"softmax", softmax<float>, softmax<double>},
                          {"reduce_sum", reduce_sum<float>, reduce_sum<double>}};

struct Precision {
  DType inputs, actual, reference;
};
const Precision precisions[] = {{DType::float32, DType::float32, DType::float32},
                                {DType::bfloat16, DType::bfloat16, DType::bfloat16},
                                {DType::bfloat16, DType::bfloat16, DType::float32},
                                {DType::bfloat16, DType::float32, DType::bfloat16}};

// Activations of both signs or, behind a ReLU, of one; weights that keep their size.
Inputs inputs_of(const Kernel& kernel, DType dtype, std::int64_t K, bool positive, std::uint64_t seed) {
  Values x = Random(seed).normals(2 * K);
  for (double& v : x) v = positive ? std::max(v, 0.0) : v;
  const Shape shape = kernel.op == "matmul" ? Shape{3, K} : Shape{K};
  const double scale = kernel.op == "matmul" ? 1 / std::sqrt(static_cast<double>(K)) : 1;
  return {Tensor::from_values(dtype, {2, K}, x), normal_tensor(dtype, shape, seed + 1, scale)};
}

// Of the last tensor, by the derived bound: the golden operator on its own recorded inputs.
double local_ratio(const RecordedPair& run, Finding f) {
  const auto actual = logical_tensors(run.actual), reference = logical_tensors(run.reference);
  LocalErrors errors({run.actual, run.reference, actual, reference});
  const auto local = errors.judge(f, {&actual.back(), &reference.back()});
  return local ? local->ratio : std::numeric_limits<double>::quiet_NaN();
}

// Whether the two differ at all: only then is the pair a test.
bool expect_clean(const Kernel& kernel, const Precision& precision, const Inputs& in, Order order) {
  const std::int64_t N = in.x.shape()[0], K = in.x.shape()[1];
  const auto stored = [N](DType d, const Values& v) {
    return Tensor::from_values(d, {N, static_cast<std::int64_t>(v.size()) / N}, v);
  };
  const auto id = [](const char* slot, std::string_view arg, std::int64_t mb) {
    return Identity{0, mb, Phase::forward, "m", slot, std::string(arg), 0};
  };
  RecordedPair run;
  if (!kernel.param.empty()) run.add(id("param", kernel.param, -1), in.w);
  run.add(id("input", "x", 0), in.x, kernel.op);
  run.add(id("output", "y", 0), stored(precision.actual, kernel.device(in, order)),
          stored(precision.reference, kernel.reference(in, Order::sequential)), kernel.op, K);
  const Report report = run.diff();
  const std::string what =
      fmt::format("{} {} against {}, order {}, {} terms", kernel.op, name(precision.actual),
                  name(precision.reference), static_cast<int>(order), K);
  EXPECT_EQ(report.exit_status(), 0) << what << ": " << report.findings.back().reason;
  EXPECT_LE(local_ratio(run, report.findings.back()), 1) << what;
  return report.findings.back().metrics->max_abs > 0;
}

TEST(CleanPairs, GiveNoFailure) {
  for (const Kernel& kernel : kernels) {
    for (const Precision& precision : precisions) {
      int pairs = 0, different = 0;
      for (const std::int64_t K : {17, 300, 2100}) {
        for (const bool positive : {false, true}) {
          const Inputs in = inputs_of(kernel, precision.inputs, K, positive, static_cast<std::uint64_t>(K));
          for (const Order order : orders) {
            different += expect_clean(kernel, precision, in, order) ? 1 : 0;
            ++pairs;
          }
        }
      }
      // Where both are stored as bfloat16, what the orders differ by is mostly rounded away.
      const bool rounded_away = precision.actual == DType::bfloat16 && precision.reference == DType::bfloat16;
      EXPECT_TRUE(rounded_away || 2 * different > pairs)
          << kernel.op << ": " << different << " of " << pairs << " pairs differ at all";
    }
  }
}

}  // namespace
}  // namespace assay::clean_pairs_test
