// The differ against a plain read of both arrays, in one run: the counter of_read is the share of the read's
// speed, by processor time, which other processes disturb least.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "assay/compare/measure/measure.h"
#include "assay/compare/rules/policy.h"

namespace assay {
namespace {

constexpr std::int64_t elements = std::int64_t{1} << 25;  // 128 MiB a side in float32: far beyond the caches

enum Kind {
  noise,   ///< off by a relative 1e-6 (float32) or by a unit in the last place now and then (16 bits)
  masks,   ///< half of both sides -inf, the rest noise: attention masks
  sparse,  ///< half of both sides zero
  equal
};

// One side: values around 1; the other, of the same numbers, as another platform would have it. It lies as
// the elements of a mapped .npy file do: 128 bytes into a page.
Tensor side(DType dtype, Kind kind, bool noisy) {
  constexpr std::size_t header = 128;
  const auto size = static_cast<std::size_t>(elements) * size_of(dtype);
  const std::shared_ptr<std::byte> file(static_cast<std::byte*>(std::aligned_alloc(4096, 4096 + size)),
                                        std::free);
  const std::span<std::byte> bytes(file.get() + header, size);
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) {
    const std::uint64_t bits = random();
    double value = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
    if (kind == masks && (bits & 1) != 0) value = -std::numeric_limits<double>::infinity();
    if (kind == sparse && (bits & 1) != 0) value = 0;
    const bool off = noisy && kind != equal;
    if (off && dtype == DType::float32) value *= 1 + static_cast<double>(bits >> 32) * 0x1p-52;
    std::uint64_t code = bits;
    if (is_float(dtype)) code = encode(dtype, value);
    if (dtype == DType::float32) code = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if (off && dtype != DType::float32 && bits % 10 == 2) code ^= 1;
    std::memcpy(bytes.data() + i * size_of(dtype), &code, size_of(dtype));
  }
  return {dtype, {elements}, bytes, file};
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

// Both at a time, block by block, as the differ takes them.
void read_both(const Tensor& a, const Tensor& b, int threads) {
  constexpr std::size_t blocks = 2048;
  std::vector<std::jthread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const std::size_t part = blocks / static_cast<std::size_t>(threads),
                        first = part * static_cast<std::size_t>(t);
      for (std::size_t block = first; block < first + part; ++block) {
        for (const Tensor* side : {&a, &b}) {
          const std::size_t size = side->bytes().size() / blocks;
          benchmark::DoNotOptimize(read_words(side->bytes().subspan(block * size, size)));
        }
      }
    });
  }
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Reads first, then measures, alternating in every iteration, so that both see the same machine. The fastest
// of each are compared.
void differ(benchmark::State& state, DType actual, DType reference, Kind kind, bool exact_sums) {
  // Made once for both numbers of threads; only the last pair is kept.
  static std::tuple<DType, DType, Kind> made;
  static Tensor a, r;
  if (a.size() == 0 || made != std::tuple(actual, reference, kind)) {
    a = side(actual, kind, true);
    r = side(reference, kind, false);
    made = {actual, reference, kind};
  }
  // What diff allows by default.
  static const Policy policy = load_policy("telechat3");
  const Row* row = policy.find(coarser(actual, reference), 0);
  const Allowed allowed = row != nullptr ? Allowed{row->atol, row->rtol, {}} : Allowed{};
  const int threads = static_cast<int>(state.range(0));
  double read = std::numeric_limits<double>::infinity(), measured = read;
  for (auto _ : state) {
    const double start = processor_seconds();
    read_both(a, r, threads);
    const double middle = processor_seconds();
    benchmark::DoNotOptimize(measure(a, r, allowed, threads, exact_sums));
    const double end = processor_seconds();
    read = std::min(read, middle - start);
    measured = std::min(measured, end - middle);
    state.SetIterationTime(end - middle);
  }
  state.counters["of_read"] = read / measured;
  const double gigabytes = 1e-9 * static_cast<double>(a.bytes().size() + r.bytes().size());
  state.counters["read_GB/s"] = gigabytes / read;
  state.counters["GB/s"] = gigabytes / measured;
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(a.bytes().size() + r.bytes().size()));
}

void pair(const std::string& name, DType actual, DType reference, Kind kind = noise,
          bool exact_sums = false) {
  benchmark::RegisterBenchmark(
      ("differ/" + name).c_str(),
      [=](benchmark::State& state) { differ(state, actual, reference, kind, exact_sums); })
      ->Arg(1)
      ->Arg(2)
      ->ArgName("threads")
      ->UseManualTime()
      ->Iterations(15);
}

// 20,000 pairs of a thousand elements: what each of them costs beside its elements.
void small_tensors(benchmark::State& state) {
  const std::vector<double> values(1000, 1.5);
  const Tensor a = Tensor::from_values(DType::float32, {1000}, values);
  std::vector<double> others = values;
  others[7] = 1.25;
  const Tensor r = Tensor::from_values(DType::float32, {1000}, others);
  for (auto _ : state) {
    for (int i = 0; i < 20'000; ++i) benchmark::DoNotOptimize(measure(a, r, {1e-4, 1e-4, {}}, 2));
  }
}
BENCHMARK(small_tensors)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  using enum assay::DType;
  assay::pair("float32", float32, float32);
  assay::pair("bfloat16", bfloat16, bfloat16);
  assay::pair("float16", float16, float16);
  assay::pair("float32_bfloat16", float32, bfloat16);
  assay::pair("masks", float32, float32, assay::masks);
  assay::pair("sparse", float32, float32, assay::sparse);
  assay::pair("equal", float32, float32, assay::equal);
  assay::pair("float64", float64, float64);
  assay::pair("float64_float32", float64, float32);
  assay::pair("float8_e4m3fn", float8_e4m3fn, float8_e4m3fn);
  assay::pair("int32", int32, int32);
  assay::pair("exact_sums", float32, float32, assay::noise, true);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
