// The differ fed from warm HDF5 files against the differ in memory, in one run: the counter of_memory is the
// share of its speed. Opening the files, their worker processes included, is part of it.
#include <benchmark/benchmark.h>
#include <hdf5.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "assay/compare/metrics.h"
#include "assay/dumps/dump.h"

namespace assay {
namespace {

constexpr std::int64_t rows = 4096, columns = 8192;  // 128 MiB a side in float32: far beyond the caches

enum Layout { contiguous, row_chunks, block_chunks, gzip };

// One side of 10-bit values, so that deflate finds something; the other off by a relative 1e-6.
Tensor side(bool noisy) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::mt19937 random(7);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(random() >> 22) - 512) / 512;
    if (noisy) value *= 1 + 1e-6f;
  }
  return {{rows, columns}, std::span<const float>(values)};
}

std::filesystem::path write(const Tensor& tensor, Layout layout, const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() / ("assay_bench_" + name + ".h5");
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  // Without a B-tree between them, chunks of whole rows follow each other as the elements do.
  if (layout == row_chunks) H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const hsize_t extents[] = {rows, columns}, whole_rows[] = {32, columns}, blocks[] = {512, 512};
  const hid_t space = H5Screate_simple(2, extents, nullptr), plist = H5Pcreate(H5P_DATASET_CREATE);
  if (layout != contiguous) H5Pset_chunk(plist, 2, layout == row_chunks ? whole_rows : blocks);
  if (layout == row_chunks) H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY);
  if (layout == gzip) {
    H5Pset_shuffle(plist);
    H5Pset_deflate(plist, 1);
  }
  const hid_t dataset = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  H5Dwrite(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes().data());
  H5Dclose(dataset);
  H5Pclose(plist);
  H5Sclose(space);
  H5Fclose(file);
  H5Pclose(access);
  return path;
}

// In memory first, then from the files, alternating in every iteration, so that both see the same machine.
void differ(benchmark::State& state, Layout layout) {
  const Tensor a = side(true), r = side(false);
  const auto actual = write(a, layout, "a" + std::to_string(::getpid()));
  const auto reference = write(r, layout, "r" + std::to_string(::getpid()));
  const int threads = static_cast<int>(state.range(0));
  using Clock = std::chrono::steady_clock;
  double memory = 0, files = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    benchmark::DoNotOptimize(measure(a, r, {1e-4, 1e-4, {}}, threads));
    const auto middle = Clock::now();
    const auto one = open_dump(actual), other = open_dump(reference);
    benchmark::DoNotOptimize(measure(one->read(0), other->read(0), {1e-4, 1e-4, {}}, threads));
    const auto end = Clock::now();
    memory += std::chrono::duration<double>(middle - start).count();
    files += std::chrono::duration<double>(end - middle).count();
    state.SetIterationTime(std::chrono::duration<double>(end - middle).count());
  }
  state.counters["of_memory"] = memory / files;
  state.SetBytesProcessed(state.iterations() * 2 * rows * columns * 4);
  std::filesystem::remove(actual);
  std::filesystem::remove(reference);
}

void both(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1)->Arg(2)->ArgName("threads")->UseManualTime()->MinTime(2);
}

BENCHMARK_CAPTURE(differ, contiguous, contiguous)->Apply(both);
BENCHMARK_CAPTURE(differ, row_chunks, row_chunks)->Apply(both);
BENCHMARK_CAPTURE(differ, block_chunks, block_chunks)->Apply(both);
BENCHMARK_CAPTURE(differ, gzip, gzip)->Apply(both);

}  // namespace
}  // namespace assay

BENCHMARK_MAIN();
