#include <algorithm>
#include <cstring>

#include "assay/dumps/dump.h"
#include "assay/dumps/json.h"
#include "assay/dumps/readers.h"
#include "assay/dumps/safetensors.h"
#include "assay/dumps/zip.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Bytes = std::span<const std::byte>;

bool starts_with(Bytes file, std::string_view magic, std::size_t at = 0) {
  return file.size() >= at + magic.size() && std::memcmp(file.data() + at, magic.data(), magic.size()) == 0;
}

bool is_npy(Bytes file) {
  return starts_with(file, "\x93NUMPY");
}

// The user block of an HDF5 file pushes its signature to 512, 1024, 2048, ..
bool is_hdf5(Bytes file) {
  constexpr std::string_view magic = "\x89HDF\r\n\x1a\n";
  if (starts_with(file, magic)) return true;
  for (std::size_t at = 512; at < file.size(); at *= 2) {
    if (starts_with(file, magic, at)) return true;
  }
  return false;
}

bool is_zip(Bytes file) {
  return starts_with(file, "PK\x03\x04") || starts_with(file, "PK\x05\x06");
}

// An npz is a zip archive without torch's pickle.
std::unique_ptr<Dump> open_zip(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  const ZipArchive archive(file);
  const auto is_pickle = [](const auto& member) { return member.name.ends_with("/data.pkl"); };
  const bool is_pt = std::any_of(archive.members().begin(), archive.members().end(), is_pickle);
  return is_pt ? open_pt(std::move(file), options) : open_npz(std::move(file), options);
}

// torch.save before 1.6, or with _use_new_zipfile_serialization=False: a pickle of its magic number comes
// first.
bool is_old_pt(Bytes file) {
  return file.size() > 15 && starts_with(file, "\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19", 2);
}

std::unique_ptr<Dump> refuse_old_pt(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  throw Error("{}: a .pt file of the old form (before torch 1.6): load and save it again with torch.save",
              file->path().string());
}

struct Format {
  bool (*fits)(Bytes);
  std::unique_ptr<Dump> (*open)(std::shared_ptr<const MappedFile>, const OpenOptions&);
};

// The formats of single files, most specific first.
constexpr Format formats[] = {{is_npy, open_npy},
                              {is_hdf5, open_hdf5},
                              {is_zip, open_zip},
                              {is_old_pt, refuse_old_pt},
                              {looks_like_safetensors, open_safetensors}};

bool is_assay_dump(const std::filesystem::path& folder) {
  const std::filesystem::path manifest = folder / "manifest.json";
  if (!exists(manifest)) return false;
  const auto file = MappedFile::open(manifest);
  const Json json = parse_json(file->text(), manifest.string());
  const Json* format = json.find("format");
  return format != nullptr && format->is_string() && format->string("") == "assay-dump";
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_msprobe(const std::filesystem::path& folder) {
  if (exists(folder / "dump.json")) return true;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step") && is_number(std::string_view(name).substr(4)) && entry.is_directory())
      return true;
    const bool is_rank =
        (name.starts_with("rank") && (name.size() == 4 || is_number(std::string_view(name).substr(4)))) ||
        (name.starts_with("proc") && is_number(std::string_view(name).substr(4)));
    if (is_rank && exists(entry.path() / "dump.json")) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Dump> open_file(std::shared_ptr<const MappedFile> file, const OpenOptions& options) {
  for (const Format& format : formats) {
    if (format.fits(file->bytes())) return format.open(file, options);
  }
  return nullptr;
}

std::unique_ptr<Dump> open_dump(const std::filesystem::path& path, const OpenOptions& options) {
  try {
    const auto status = std::filesystem::status(path);
    if (!exists(status)) throw Error("{}: no such file or folder", path.string());
    if (is_directory(status)) {
      if (is_assay_dump(path)) return open_assay_dump(path);
      if (is_msprobe(path)) return open_msprobe(path, options);
      return open_folder(path, options);
    }
    auto dump = open_file(MappedFile::open(path), options);
    if (dump == nullptr) {
      throw Error("{}: no known format: expected npy, npz, safetensors, .pt, HDF5, or a folder of dumps",
                  path.string());
    }
    for (Record& record : dump->records) {
      if (record.id.module.empty()) record.id.module = path.stem().string();
    }
    return dump;
  } catch (const std::filesystem::filesystem_error& problem) {
    throw Error("{}: {}", path.string(), problem.code().message());
  }
}

}  // namespace assay
