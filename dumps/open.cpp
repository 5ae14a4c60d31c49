#include <fmt/core.h>

#include <chrono>

#include "assay/dumps/record/dump.h"
#include "assay/dumps/record/plain_tensor.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// Most specific first: a .pt is a zip archive with a pickle in it, an npz is any other.
constexpr FileFormat formats[] = {{"npy", {".npy"}, fits_npy, open_npy},
                                  {"HDF5", {".h5", ".hdf5"}, fits_hdf5, open_hdf5},
                                  {".pt", {".pt", ".pth", ".bin"}, fits_pt, open_pt},
                                  {"npz", {".npz"}, fits_npz, open_npz},
                                  {"GGUF", {".gguf"}, fits_gguf, open_gguf},
                                  {"inspect --json", {}, fits_inspect_listing, open_inspect_listing},
                                  {"baseline", {}, fits_fingerprint, open_fingerprint},
                                  {"DebugMode log", {}, fits_debug_mode, open_debug_mode},
                                  {"safetensors index", {}, fits_safetensors_index, open_safetensors_index},
                                  {"safetensors", {".safetensors"}, fits_safetensors, open_safetensors}};

struct FolderFormat {
  bool (*fits)(const std::filesystem::path&);
  std::unique_ptr<Dump> (*open)(const std::filesystem::path&, const OpenOptions&);
};
constexpr FolderFormat folder_formats[] = {
    {fits_assay_dump, open_assay_dump}, {fits_msprobe, open_msprobe},
    {fits_mindspore, open_mindspore},   {fits_dcp, open_dcp},
    {fits_deepspeed, open_deepspeed},   {fits_safetensors_folder, open_safetensors_folder}};

void log_opened(const Dump& dump, std::chrono::steady_clock::time_point start, const Log& log) {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  log.info("opened {}: {}, world size {}, {} records, in {:.3f} s", dump.path.string(), dump.format,
           dump.world_size, dump.records.size(), taken.count());
  for (const std::string& note : dump.notes) log.debug("{}", note);
  for (const std::string& what : dump.left_out) log.debug("left out: {}", what);
  for (const std::string& what : dump.unreadable) log.debug("unreadable: {}", what);
}

std::unique_ptr<Dump> open_any(const std::filesystem::path& path, const OpenOptions& options) {
  const auto status = std::filesystem::status(path);
  if (!exists(status)) throw Error("{}: no such file or folder", path.string());
  if (is_directory(status)) {
    for (const FolderFormat& format : folder_formats) {
      if (format.fits(path)) return format.open(path, options);
    }
    return open_folder(path, options);
  }
  auto dump = open_file(MappedFile::open(path), options);
  if (dump == nullptr) {
    std::string names;
    for (const FileFormat& format : formats) names.append(format.name).append(", ");
    throw Error("{}: no known format: expected {}raw numbers (--raw DTYPE:N,N,..) or a folder of dumps",
                path.string(), names);
  }
  for (Record& record : dump->records) {
    if (record.id.module.empty()) record.id.module = path.stem().string();
  }
  return dump;
}

}  // namespace

std::span<const FileFormat> file_formats() {
  return formats;
}

std::unique_ptr<Dump> open_file(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  for (const FileFormat& format : formats) {
    // safetensors has no magic: raw numbers can begin like one (a small int64, then 123).
    if (options.raw && format.open == open_safetensors && file->path().extension() != ".safetensors")
      continue;
    if (format.fits(file)) return format.open(std::move(file), options);
  }
  return options.raw ? open_raw(std::move(file), options) : nullptr;
}

std::unique_ptr<Dump> open_dump(const std::filesystem::path& path, const OpenOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  try {
    auto dump = open_any(path, options);
    // Here and not in each reader, so that none can forget it.
    for (Record& record : dump->records) {
      check_names(record, path.string());
      // Formats that have nothing but names leave the rest to their default.
      Identity plain;
      plain.module = record.id.module;
      if (dump->format != "assay-dump" && record.id == plain) record.id = parse_plain_name(plain.module);
    }
    check_not_shrunk(path.string());
    log_opened(*dump, start, options.log);
    return dump;
  } catch (const std::filesystem::filesystem_error& problem) {
    throw Error("{}: {}", path.string(), problem.code().message());
  }
}

}  // namespace assay
