#include <fmt/core.h>

#include "assay/dumps/dump.h"
#include "assay/dumps/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// Most specific first: a .pt is a zip archive with a pickle in it, an npz is any other.
constexpr FileFormat formats[] = {{"npy", {".npy"}, fits_npy, open_npy},
                                  {"HDF5", {".h5", ".hdf5"}, fits_hdf5, open_hdf5},
                                  {".pt", {".pt", ".pth", ".bin"}, fits_pt, open_pt},
                                  {"npz", {".npz"}, fits_npz, open_npz},
                                  {"safetensors", {".safetensors"}, fits_safetensors, open_safetensors}};

struct FolderFormat {
  bool (*fits)(const std::filesystem::path&);
  std::unique_ptr<Dump> (*open)(const std::filesystem::path&, const OpenOptions&);
};
constexpr FolderFormat folder_formats[] = {{fits_assay_dump, open_assay_dump},
                                           {fits_msprobe, open_msprobe},
                                           {fits_mindspore, open_mindspore},
                                           {fits_dcp, open_dcp},
                                           {fits_deepspeed, open_deepspeed}};

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
    throw Error("{}: no known format: expected {}or a folder of dumps", path.string(), names);
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
    if (format.fits(file)) return format.open(std::move(file), options);
  }
  return nullptr;
}

std::unique_ptr<Dump> open_dump(const std::filesystem::path& path, const OpenOptions& options) {
  try {
    auto dump = open_any(path, options);
    // Here and not in each reader, so that none can forget it.
    for (const Record& record : dump->records) check_names(record, path.string());
    check_not_shrunk(path.string());
    return dump;
  } catch (const std::filesystem::filesystem_error& problem) {
    throw Error("{}: {}", path.string(), problem.code().message());
  }
}

}  // namespace assay
