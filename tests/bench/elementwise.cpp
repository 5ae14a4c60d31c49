// correctly_rounded() against the same function in a loop over the C library's float64 functions, rounded to
// float32 at the end, in one run: the counter of_libm is how many times faster it is.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "assay/golden/correctly_rounded.h"

namespace assay {
namespace {

constexpr std::size_t elements = 1 << 20;

template <class F>
void map(const std::vector<float>& x, std::vector<float>& y, F f) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(f(static_cast<double>(x[i])));
}

void by_libm(Function f, const std::vector<float>& x, std::vector<float>& y) {
  const double root_half = std::sqrt(0.5), slope = std::sqrt(8 / 3.14159265358979323846);
  switch (f) {
    case Function::exp:
      return map(x, y, [](double v) { return std::exp(v); });
    case Function::log:
      return map(x, y, [](double v) { return std::log(v); });
    case Function::log1p:
      return map(x, y, [](double v) { return std::log1p(v); });
    case Function::expm1:
      return map(x, y, [](double v) { return std::expm1(v); });
    case Function::sqrt:
      return map(x, y, [](double v) { return std::sqrt(v); });
    case Function::rsqrt:
      return map(x, y, [](double v) { return 1 / std::sqrt(v); });
    case Function::reciprocal:
      return map(x, y, [](double v) { return 1 / v; });
    case Function::sin:
      return map(x, y, [](double v) { return std::sin(v); });
    case Function::cos:
      return map(x, y, [](double v) { return std::cos(v); });
    case Function::tanh:
      return map(x, y, [](double v) { return std::tanh(v); });
    case Function::erf:
      return map(x, y, [](double v) { return std::erf(v); });
    case Function::sigmoid:
      return map(x, y, [](double v) { return 1 / (1 + std::exp(-v)); });
    case Function::silu:
      return map(x, y, [](double v) { return v / (1 + std::exp(-v)); });
    case Function::gelu:
      return map(x, y, [&](double v) { return 0.5 * v * std::erfc(-v * root_half); });
    case Function::gelu_tanh:
      return map(x, y, [&](double v) { return v / (1 + std::exp(-slope * (v + 0.044715 * v * v * v))); });
    case Function::softplus:
      return map(x, y, [](double v) { return std::fmax(v, 0.0) + std::log1p(std::exp(-std::abs(v))); });
  }
}

// What the operators see: within +-8, positive where the domain is; angles as large as long sequences make.
std::vector<float> arguments(Function f) {
  const bool positive =
      f == Function::log || f == Function::log1p || f == Function::sqrt || f == Function::rsqrt;
  const bool angle = f == Function::sin || f == Function::cos;
  std::mt19937_64 random(3);
  std::vector<float> x(elements);
  for (float& v : x) {
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    v = static_cast<float>(angle ? 131072 * unit : positive ? 8 * unit : 16 * unit - 8);
  }
  return x;
}

void elementwise(benchmark::State& state, Function f) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const std::vector<float> x = arguments(f);
  std::vector<float> y(elements);
  const int threads = static_cast<int>(state.range(0));
  double libm = 0, golden = 0;
  std::int64_t escalated = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    by_libm(f, x, y);
    benchmark::ClobberMemory();
    const auto middle = Clock::now();
    escalated += correctly_rounded(f, x, y, threads);
    benchmark::ClobberMemory();
    const auto end = Clock::now();
    libm += Seconds(middle - start).count();
    golden += Seconds(end - middle).count();
    state.SetIterationTime(Seconds(end - middle).count());
  }
  state.counters["of_libm"] = libm / golden;
  state.counters["ns"] = golden / static_cast<double>(state.iterations()) / elements * 1e9;
  state.counters["escalated"] = static_cast<double>(escalated) / static_cast<double>(state.iterations());
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  for (const assay::Function f : assay::all_functions) {
    benchmark::RegisterBenchmark(std::string(assay::name(f)).c_str(), assay::elementwise, f)
        ->Arg(1)
        ->ArgName("threads")
        ->UseManualTime();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
