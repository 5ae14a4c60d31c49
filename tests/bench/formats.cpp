// The differ fed from warm files of every format against the differ in memory, in one run: the counter
// of_memory is the share of its speed, best of the iterations against best; of_cpu is the same in processor
// time, which other work on the machine changes less. Opening the files, with their checksums and worker
// processes, is part of it.
#include <benchmark/benchmark.h>
#include <hdf5.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "assay/compare/measure/measure.h"
#include "assay/dumps/npy_writer.h"
#include "assay/dumps/record/dump.h"
#include "assay/dumps/safetensors_writer.h"

namespace assay {
namespace {

constexpr std::int64_t rows = 8192, columns = 8192;  // 256 MiB a side in float32: far beyond the caches
constexpr int iterations = 3;

// One side of 10-bit values, so that deflate finds something; the other off by a relative 1e-6.
const Tensor& side(bool noisy) {
  static const auto make = [](bool off) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    std::mt19937 random(7);
    for (float& value : values) {
      value = static_cast<float>(static_cast<int>(random() >> 22) - 512) / 512;
      if (off) value *= 1 + 1e-6f;
    }
    return Tensor({rows, columns}, std::span<const float>(values));
  };
  static const Tensor exact = make(false), other = make(true);
  return noisy ? other : exact;
}

using Write = void (*)(const Tensor&, const std::filesystem::path&);

void npy(const Tensor& tensor, const std::filesystem::path& path) {
  write_npy(path, tensor);
}

void safetensors(const Tensor& tensor, const std::filesystem::path& path) {
  const PlainTensor plain{"x", tensor.dtype(), tensor.shape(), [&] { return tensor; }};
  write_safetensors(path, {&plain, 1});
}

/// A zip archive without compression as torch.save writes it: checksums, data aligned to 64 bytes.
class Pt {
 public:
  explicit Pt(const std::filesystem::path& path) : out_(path, std::ios::binary) {}
  void add(const std::string& name, std::string_view bytes) {
    const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    const std::string size = little(bytes.size(), 4);
    const std::string about =
        little(0, 6) + little(0, 4) + little(crc, 4) + size + size + little(name.size(), 2);
    const std::size_t head = 30 + name.size(), padding = (64 - (at_ + head) % 64) % 64;
    directory_ += "PK\1\2" + little(0, 2) + about + little(0, 12) + little(at_, 4) + name;
    put("PK\3\4" + about + little(padding, 2) + name + std::string(padding, '\0'));
    put(bytes);
    ++members_;
  }
  void close() {
    const std::size_t start = at_;
    put(directory_);
    put("PK\5\6" + little(0, 4) + little(members_, 2) + little(members_, 2) + little(directory_.size(), 4) +
        little(start, 4) + little(0, 2));
  }
  static std::string little(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return text;
  }

 private:
  void put(std::string_view bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    at_ += bytes.size();
  }
  std::ofstream out_;
  std::string directory_;
  std::size_t at_ = 0, members_ = 0;
};

// torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())
void pt(const Tensor& tensor, const std::filesystem::path& path) {
  const auto number = [](std::int64_t n) { return "J" + Pt::little(static_cast<std::uint64_t>(n), 4); };
  const auto text = [](const std::string& t) { return "X" + Pt::little(t.size(), 4) + t; };
  Pt archive(path);
  archive.add("x/data.pkl",
              "\x80\x02"
              "ctorch._utils\n_rebuild_tensor_v2\n((" +
                  text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") +
                  number(tensor.size()) + "tQ" + number(0) + number(rows) + number(columns) + "\x86" +
                  number(columns) + number(1) + "\x86\x89" + "ccollections\nOrderedDict\n)RtR.");
  archive.add("x/byteorder", "little");
  archive.add("x/data/0", {reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size()});
  archive.add("x/version", "3\n");
  archive.close();
}

/// @param chunk_rows  0: contiguous
void hdf5(const Tensor& tensor, const std::filesystem::path& path, hsize_t chunk_rows, hsize_t chunk_columns,
          bool gzip) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t extents[] = {rows, columns}, chunk[] = {chunk_rows, chunk_columns};
  const hid_t space = H5Screate_simple(2, extents, nullptr), plist = H5Pcreate(H5P_DATASET_CREATE);
  if (chunk_rows != 0) H5Pset_chunk(plist, 2, chunk);
  if (gzip) {
    H5Pset_shuffle(plist);
    H5Pset_deflate(plist, 1);
  }
  const hid_t dataset = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  H5Dwrite(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes().data());
  H5Dclose(dataset);
  H5Pclose(plist);
  H5Sclose(space);
  H5Fclose(file);
}

void hdf5_contiguous(const Tensor& tensor, const std::filesystem::path& path) {
  hdf5(tensor, path, 0, 0, false);
}
void hdf5_row_chunks(const Tensor& tensor, const std::filesystem::path& path) {
  hdf5(tensor, path, 32, columns, false);
}
void hdf5_tiles(const Tensor& tensor, const std::filesystem::path& path) {
  hdf5(tensor, path, 512, 512, false);
}
void hdf5_gzip(const Tensor& tensor, const std::filesystem::path& path) {
  hdf5(tensor, path, 512, 512, true);
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// In memory first, then from the files, alternating in every iteration, so that both see the same machine.
void differ(benchmark::State& state, Write write) {
  const Tensor &a = side(true), &r = side(false);
  const auto folder = std::filesystem::temp_directory_path() / ("assay_bench_" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  write(a, folder / "a");
  write(r, folder / "r");
  const int threads = static_cast<int>(state.range(0));
  using Clock = std::chrono::steady_clock;
  double memory = std::numeric_limits<double>::infinity(), files = memory;
  double memory_cpu = memory, files_cpu = memory;
  for (auto _ : state) {
    const auto start = Clock::now();
    const double start_cpu = processor_seconds();
    benchmark::DoNotOptimize(measure(a, r, {1e-4, 1e-4, {}}, threads));
    const auto middle = Clock::now();
    const double middle_cpu = processor_seconds();
    const auto one = open_dump(folder / "a"), other = open_dump(folder / "r");
    benchmark::DoNotOptimize(measure(one->source(0), other->source(0), {1e-4, 1e-4, {}}, threads));
    const auto end = Clock::now();
    memory = std::min(memory, std::chrono::duration<double>(middle - start).count());
    files = std::min(files, std::chrono::duration<double>(end - middle).count());
    memory_cpu = std::min(memory_cpu, middle_cpu - start_cpu);
    files_cpu = std::min(files_cpu, processor_seconds() - middle_cpu);
    state.SetIterationTime(std::chrono::duration<double>(end - middle).count());
  }
  state.counters["of_memory"] = memory / files;
  state.counters["of_cpu"] = memory_cpu / files_cpu;
  state.SetBytesProcessed(state.iterations() * 2 * rows * columns * 4);
  std::filesystem::remove_all(folder);
}

void both(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1)->Arg(2)->ArgName("threads")->UseManualTime()->Iterations(iterations);
}

BENCHMARK_CAPTURE(differ, npy, npy)->Apply(both);
BENCHMARK_CAPTURE(differ, safetensors, safetensors)->Apply(both);
BENCHMARK_CAPTURE(differ, pt, pt)->Apply(both);
BENCHMARK_CAPTURE(differ, hdf5_contiguous, hdf5_contiguous)->Apply(both);
BENCHMARK_CAPTURE(differ, hdf5_row_chunks, hdf5_row_chunks)->Apply(both);
BENCHMARK_CAPTURE(differ, hdf5_tiles, hdf5_tiles)->Apply(both);
BENCHMARK_CAPTURE(differ, hdf5_gzip, hdf5_gzip)->Apply(both);

}  // namespace
}  // namespace assay

BENCHMARK_MAIN();
