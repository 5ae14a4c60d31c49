// The differ against a plain read of both arrays, in one run: the counter of_read is the share of the read's
// speed.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "assay/compare/metrics.h"

namespace assay {
namespace {

constexpr std::int64_t elements = std::int64_t{1} << 25;  // 128 MiB a side in float32: far beyond the caches

// One side: values around 1, the other off by a relative 1e-6, as two platforms would be.
Tensor side(DType dtype, bool noisy) {
  static std::map<std::pair<DType, bool>, Tensor> made;
  if (const auto found = made.find({dtype, noisy}); found != made.end()) return found->second;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size_of(dtype));
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
    const double value = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    const double off = noisy ? 1 + static_cast<double>(random() >> 11) * 0x1p-73 : 1;
    const std::uint64_t code = dtype == DType::float32
                                   ? std::bit_cast<std::uint32_t>(static_cast<float>(value * off))
                                   : encode(dtype, value * off);
    std::memcpy(bytes.data() + i * size_of(dtype), &code, size_of(dtype));
  }
  return made[{dtype, noisy}] = Tensor(dtype, {elements}, std::move(bytes));
}

std::uint64_t read_words(std::span<const std::byte> bytes) {
  std::uint64_t sum[4] = {};
  std::uint64_t words[4];
  for (std::size_t i = 0; i + sizeof words <= bytes.size(); i += sizeof words) {
    std::memcpy(words, bytes.data() + i, sizeof words);
    for (int k = 0; k < 4; ++k) sum[k] += words[k];
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

void read_both(const Tensor& a, const Tensor& b, int threads) {
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (const Tensor* side : {&a, &b}) {
        const std::size_t part = side->bytes().size() / static_cast<std::size_t>(threads);
        benchmark::DoNotOptimize(read_words(side->bytes().subspan(static_cast<std::size_t>(t) * part, part)));
      }
    });
  }
}

// Reads first, then measures, alternating in every iteration, so that both see the same machine.
void differ(benchmark::State& state, DType actual, DType reference) {
  const Tensor a = side(actual, true), r = side(reference, false);
  const int threads = static_cast<int>(state.range(0));
  using Clock = std::chrono::steady_clock;
  double read = 0, measured = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    read_both(a, r, threads);
    const auto middle = Clock::now();
    benchmark::DoNotOptimize(measure(a, r, {1e-4, 1e-4, {}}, threads));
    const auto end = Clock::now();
    read += std::chrono::duration<double>(middle - start).count();
    measured += std::chrono::duration<double>(end - middle).count();
    state.SetIterationTime(std::chrono::duration<double>(end - middle).count());
  }
  state.counters["of_read"] = read / measured;
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(a.bytes().size() + r.bytes().size()));
}

BENCHMARK_CAPTURE(differ, fp32, DType::float32, DType::float32)
    ->Arg(1)
    ->Arg(2)
    ->ArgName("threads")
    ->UseManualTime()
    ->MinTime(1);
BENCHMARK_CAPTURE(differ, bf16, DType::bfloat16, DType::bfloat16)
    ->Arg(1)
    ->Arg(2)
    ->ArgName("threads")
    ->UseManualTime()
    ->MinTime(1);
BENCHMARK_CAPTURE(differ, mixed, DType::bfloat16, DType::float32)
    ->Arg(1)
    ->Arg(2)
    ->ArgName("threads")
    ->UseManualTime()
    ->MinTime(1);

}  // namespace
}  // namespace assay

BENCHMARK_MAIN();
