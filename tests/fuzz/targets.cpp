#include "targets.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "assay/dumps/io/csv.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/layout/layout_rules.h"
#include "assay/dumps/layout/merge.h"
#include "assay/dumps/torch/pickle.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

// As much as a fuzzing step has time for.
constexpr std::int64_t most_elements = 1 << 16;

std::string_view text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Everything that inspect and diff do with a dump.
void use(const fs::path& path, const OpenOptions& options = {}) {
  try {
    const auto dump = open_dump(path, options);
    for (const LogicalTensor& tensor : logical_tensors(*dump)) {
      static_cast<void>(to_string(tensor.id));
      if (without_bits(*dump, tensor) != nullptr) continue;
      try {
        const Merged merged = merge(*dump, tensor);
        const std::int64_t size = merged.tensor.size();
        merged.tensor.window(0, std::min(size, most_elements)).values();
        if (size > most_elements) merged.tensor.window(size - most_elements, most_elements).values();
      } catch (const Error&) {  // the other tensors go on
      }
    }
  } catch (const Error&) {
  }
}

/// The bytes as a file that exists in memory only.
class MemoryFile {
 public:
  explicit MemoryFile(Bytes bytes) : descriptor_(memfd_create("fuzz", 0)) {
    if (descriptor_ < 0 ||
        write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("no memory file");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  fs::path path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

void any_file(Bytes bytes) {
  use(MemoryFile(bytes).path());
}

/// A folder in memory; made once, as a step takes microseconds.
const fs::path& folder() {
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static const Removed made = {[] {
    std::string name =
        (fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string()) + "/assay_fuzz_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder");
    return fs::path(name);
  }()};
  return made.path;
}

void put(const fs::path& name, std::string_view content) {
  fs::create_directories((folder() / name).parent_path());
  std::ofstream(folder() / name, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

// A safetensors file with one tensor of 8 bytes, "t".
std::string eight_bytes() {
  std::string header = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  return size + header + "12345678";
}

void assay_dump_index(Bytes bytes) {
  put("index/manifest.json",
      R"({"format":"assay-dump","version":1,"world_size":1,"mesh":{"dims":["dp","tp"],"shape":[1,1]}})");
  put("index/rank00000.safetensors", eight_bytes());
  put("index/rank00000.jsonl", text(bytes));
  use(folder() / "index");
}

void assay_dump_manifest(Bytes bytes) {
  put("manifest/manifest.json", text(bytes));
  put("manifest/rank00000.safetensors", eight_bytes());
  put("manifest/rank00000.jsonl",
      R"({"seq":0,"step":0,"module":"m","slot":"param","dtype":"float32","shape":[2],"data":{"file":"rank00000.safetensors","name":"t"}})"
      "\n");
  use(folder() / "manifest");
}

void msprobe_json(Bytes bytes) {
  put("msprobe/step0/rank0/dump.json", text(bytes));
  use(folder() / "msprobe");
}

void mindspore_statistic(Bytes bytes) {
  put("mindspore/rank_0/Net/0/1/statistic.csv", text(bytes));
  use(folder() / "mindspore");
}

void dcp_metadata(Bytes bytes) {
  put("dcp/.metadata", text(bytes));
  use(folder() / "dcp");
}

void safetensors_index(Bytes bytes) {
  put("sharded/model.safetensors.index.json", text(bytes));
  put("sharded/a.safetensors", eight_bytes());
  use(folder() / "sharded");
}

void json(Bytes bytes) {
  for (const JsonNumbers numbers : {JsonNumbers::strict, JsonNumbers::python}) {
    try {
      static_cast<void>(parse_json(text(bytes), "json", numbers).text());
    } catch (const Error&) {
    }
  }
}

void pickle(Bytes bytes) {
  try {
    const Pickle parsed(bytes, "pickle");
    static_cast<void>(parsed.at(parsed.root()));
  } catch (const Error&) {
  }
}

void words(Bytes bytes) {
  const std::string word(text(bytes));
  try {
    static_cast<void>(to_string(parse_placement(word)));
  } catch (const Error&) {
  }
  try {
    static_cast<void>(parse_dims(word));
  } catch (const Error&) {
  }
}

}  // namespace

const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = {
      {"npy", any_file, {"samples/npy_f4.npy", "samples/npy_f8_fortran.npy", "samples/npy_i8_v3.npy"}},
      {"npz", any_file, {"samples/npz_stored.npz", "samples/npz_deflated.npz"}},
      {"safetensors", any_file, {"samples/every.safetensors", "files_samples/packed.safetensors"}},
      {"safetensors_index", safetensors_index, {"files_samples/sharded/model.safetensors.index.json"}},
      {"gguf",
       any_file,
       {"files_samples/little.gguf", "files_samples/big.gguf", "files_samples/version2.gguf"}},
      {"pt",
       any_file,
       {"samples/nested.pt", "samples/nested_protocol4.pt", "pytorch_samples/array.pt",
        "pytorch_samples/dtensor_rank0.pt"}},
      {"pt_stream",
       any_file,
       {"pytorch_samples/stream_2.pt", "pytorch_samples/stream_4.pt", "pytorch_samples/stream_parts.pt"}},
      {"pickle", pickle, {}},
      {"dcp_metadata", dcp_metadata, {"pytorch_samples/dcp/.metadata"}},
      {"hdf5", any_file, {"samples/user_block.h5", "hdf5_samples/part0.h5"}},
      {"assay_dump_index", assay_dump_index, {"samples/assay_dump/rank00000.jsonl"}},
      {"assay_dump_manifest", assay_dump_manifest, {"samples/assay_dump/manifest.json"}},
      {"msprobe_json", msprobe_json, {"samples/msprobe/step0/proc4711/dump.json"}},
      {"mindspore_statistic", mindspore_statistic, {"msprobe_samples/kernels/rank_0/Net/1/2/statistic.csv"}},
      {"inspect_listing", any_file, {"statistics/listing.json"}},
      {"fingerprint", any_file, {"statistics/baseline.json"}},
      {"json", json, {"samples/assay_dump/manifest.json"}},
      {"words", words, {}},
  };
  return targets;
}

}  // namespace assay
