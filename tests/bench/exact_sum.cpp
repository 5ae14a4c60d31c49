// Exact sums and dot products against plain ones of the same float32 arrays, in one run: the counter of_plain
// is the share of the plain one's speed. The plain ones add float32 in vectors of the processor's full width.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/exact_sum.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exact_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_NOINLINE float plain_sum(const float* x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

HWY_NOINLINE float plain_dot(const float* x, const float* y, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), hn::LoadU(d, y + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, x + i + 2 * lanes), hn::LoadU(d, y + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, x + i + 3 * lanes), hn::LoadU(d, y + i + 3 * lanes), s3);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {

HWY_EXPORT(plain_sum);
HWY_EXPORT(plain_dot);

enum class Data { normal, bfloat16, cancelling, wide };

std::vector<float> make(Data data, std::size_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> table(65536), x(n);
  for (float& t : table) t = normal(random);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t r = random();
    x[i] = table[r & 0xffff] * (1 + 1e-7f * static_cast<float>(r >> 16 & 255));
    if (data == Data::bfloat16) x[i] = static_cast<float>(round_to(DType::bfloat16, x[i]));
    if (data == Data::cancelling && i >= n / 2) x[i] = -x[n - 1 - i] * (1 + 1e-6f * (i % 1000 == 0));
    if (data == Data::wide) x[i] = std::ldexp(x[i], static_cast<int>(r >> 40) % 200 - 100);
  }
  return x;
}

// Plain and exact alternate in every iteration, so that both see the same machine.
template <class Plain, class Exact>
void compare(benchmark::State& state, std::size_t bytes, Plain plain, Exact exact) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  double plain_time = 0, exact_time = 0;
  benchmark::DoNotOptimize(plain());
  for (auto _ : state) {
    const auto start = Clock::now();
    benchmark::DoNotOptimize(plain());
    const auto middle = Clock::now();
    benchmark::DoNotOptimize(exact());
    const auto end = Clock::now();
    plain_time += Seconds(middle - start).count();
    exact_time += Seconds(end - middle).count();
    state.SetIterationTime(Seconds(end - middle).count());
  }
  state.counters["of_plain"] = plain_time / exact_time;
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void sum(benchmark::State& state, Data data) {
  const auto x = make(data, static_cast<std::size_t>(state.range(0)) * 1024 / sizeof(float), 1);
  compare(
      state, x.size() * sizeof(float), [&] { return HWY_DYNAMIC_DISPATCH(plain_sum)(x.data(), x.size()); },
      [&] {
        ExactSum sum;
        sum.add(x);
        return sum.round();
      });
}

void dot(benchmark::State& state, Data data) {
  const auto n = static_cast<std::size_t>(state.range(0)) * 512 / sizeof(float);
  const auto x = make(data, n, 1), y = make(data, n, 2);
  compare(
      state, 2 * n * sizeof(float), [&] { return HWY_DYNAMIC_DISPATCH(plain_dot)(x.data(), y.data(), n); },
      [&] {
        ExactSum sum;
        sum.add_products(x, y);
        return sum.round();
      });
}

// A matmul as operators write it, [32, 240] by [80, 240]^T: in Unrounded, against float64.
template <class T>
std::vector<T> matmul(const std::vector<T>& x, const std::vector<T>& w, std::size_t K) {
  std::vector<T> y;
  for (std::size_t n = 0; n < x.size() / K; ++n) {
    for (std::size_t m = 0; m < w.size() / K; ++m) {
      y.push_back(assay::sum<T>(static_cast<std::int64_t>(K), [&](auto k) {
        return x[n * K + static_cast<std::size_t>(k)] * w[m * K + static_cast<std::size_t>(k)];
      }));
    }
  }
  return y;
}

void unrounded_matmul(benchmark::State& state, Data data) {
  constexpr std::size_t N = 32, M = 80, K = 240;
  const auto x = make(data, N * K, 1), w = make(data, M * K, 2);
  const std::vector<double> plain_x(x.begin(), x.end()), plain_w(w.begin(), w.end());
  const std::vector<Unrounded> exact_x(x.begin(), x.end()), exact_w(w.begin(), w.end());
  compare(
      state, (x.size() + w.size()) * sizeof(float), [&] { return matmul(plain_x, plain_w, K); },
      [&] { return matmul(exact_x, exact_w, K); });
}

// KiB in all: within the second cache, and far beyond all of them.
#define ASSAY_SIZES ->Arg(512)->Arg(65536)->ArgName("KiB")->UseManualTime()
BENCHMARK_CAPTURE(sum, normal, Data::normal) ASSAY_SIZES;
BENCHMARK_CAPTURE(sum, bfloat16, Data::bfloat16) ASSAY_SIZES;
BENCHMARK_CAPTURE(sum, cancelling, Data::cancelling) ASSAY_SIZES;
BENCHMARK_CAPTURE(sum, wide, Data::wide) ASSAY_SIZES;
BENCHMARK_CAPTURE(dot, normal, Data::normal) ASSAY_SIZES;
BENCHMARK_CAPTURE(dot, bfloat16, Data::bfloat16) ASSAY_SIZES;
BENCHMARK_CAPTURE(dot, wide, Data::wide) ASSAY_SIZES;
BENCHMARK_CAPTURE(unrounded_matmul, normal, Data::normal)->UseManualTime();
BENCHMARK_CAPTURE(unrounded_matmul, wide, Data::wide)->UseManualTime();

}  // namespace
}  // namespace assay

BENCHMARK_MAIN();
#endif  // HWY_ONCE
