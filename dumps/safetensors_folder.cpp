#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/readers.h"
#include "assay/dumps/safetensors.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_ending = ".safetensors.index.json";

// Both keep the names of the tensors as they are: which file a tensor lies in means nothing.
class SafetensorsFiles : public Dump {
 public:
  Tensor read(std::size_t index) const override {
    const auto& [file, entry] = places_.at(index);
    return file->read(*entry, records.at(index).dtype);
  }
  std::string location(std::size_t index) const override {
    const auto& [file, entry] = places_.at(index);
    return file->file().path().string() + ": " + entry->name;
  }

 protected:
  explicit SafetensorsFiles(const OpenOptions& options) : hint_(options.dtype_hint) {}
  SafetensorsFile& add_file(std::shared_ptr<const MappedFile> file) {
    files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
    return *files_.back();
  }
  void add(const SafetensorsFile& file, const SafetensorsFile::Entry& entry, int rank) {
    if (!entry.dtype) {
      left_out.push_back(why_left_out(file, entry));
      return;
    }
    Record record = safetensors_record(file, entry, records.size(), hint_);
    record.rank = rank;
    records.push_back(std::move(record));
    places_.emplace_back(&file, &entry);
  }

 private:
  std::optional<DType> hint_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::pair<const SafetensorsFile*, const SafetensorsFile::Entry*>> places_;
};

std::vector<fs::path> files_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_symlink() && entry.is_regular_file() &&
        entry.path().filename().string().ends_with(ending)) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Hugging Face: {"metadata": {"total_size": ..}, "weight_map": {tensor: file}}. Writers get the size wrong
// (shared tensors, one byte per element), so nothing rests on it.
class IndexedDump : public SafetensorsFiles {
 public:
  IndexedDump(const std::shared_ptr<const MappedFile>& index, const OpenOptions& options)
      : SafetensorsFiles(options) {
    path = index->path();
    format = "safetensors";
    const std::string where = path.string();
    const Json json = parse_json(index->text(), where);
    std::map<std::string, SafetensorsFile*> files;
    std::map<std::string_view, std::string_view> file_of;
    for (const auto& [tensor, file] : json.at("weight_map", where).object(where + ": weight_map")) {
      const std::string& name = file.string(where + ": weight_map");
      SafetensorsFile*& open = files[name];
      if (open == nullptr) open = &add_file(MappedFile::open_in(fs::path(path).remove_filename(), name));
      const auto* entry = open->find(tensor);
      if (entry == nullptr) {
        throw Error("{}: tensor '{}' is not in {}, where weight_map says it is", where, tensor,
                    open->file().path().string());
      }
      file_of.emplace(tensor, name);
      add(*open, *entry, 0);
    }
    for (const auto& [name, file] : files) {
      for (const SafetensorsFile::Entry& entry : file->entries()) {
        const auto mapped = file_of.find(entry.name);
        const std::string file_path = file->file().path().string();
        if (mapped == file_of.end()) {
          left_out.push_back(fmt::format("{}: tensor '{}' is not in weight_map", file_path, entry.name));
        } else if (mapped->second != name) {
          throw Error("{}: tensor '{}' is also in {}, expected it in {} only, as weight_map says", where,
                      entry.name, file_path, mapped->second);
        }
      }
    }
    for (const fs::path& other :
         files_ending(path.parent_path().empty() ? "." : path.parent_path(), ".safetensors")) {
      if (!files.contains(other.filename().string()))
        left_out.push_back(fmt::format("{}: weight_map does not name this file", other.string()));
    }
  }
};

// What save_pretrained of transformers writes of a model that fits one file.
constexpr std::string_view whole_model = "model.safetensors", its_configuration = "config.json";

bool is_one_file(const fs::path& folder) {
  const auto has = [&](std::string_view name) {
    return fs::symlink_status(folder / name).type() == fs::file_type::regular;
  };
  return has(whole_model) && has(its_configuration);
}

class OneFileDump : public SafetensorsFiles {
 public:
  OneFileDump(const fs::path& folder, const OpenOptions& options) : SafetensorsFiles(options) {
    path = folder;
    format = "safetensors";
    const SafetensorsFile& file = add_file(MappedFile::open(folder / whole_model));
    for (const SafetensorsFile::Entry& entry : file.entries()) add(file, entry, 0);
    for (const fs::path& other : files_ending(folder, ".safetensors")) {
      if (other.filename() != whole_model)
        left_out.push_back(fmt::format("{}: the model is in {}", other.string(), whole_model));
    }
  }
};

// torch.distributed.checkpoint, HuggingFaceStorageWriter(save_distributed=True): a file or more per rank,
// each with its tensors' offsets. The size of a tensor is nowhere; torch, too, takes the end of its last
// shard.
class ShardedDump : public SafetensorsFiles {
 public:
  ShardedDump(const fs::path& folder, const OpenOptions& options) : SafetensorsFiles(options) {
    path = folder;
    format = "safetensors";
    std::map<std::string, Shape> whole;
    for (const fs::path& file_path : files_ending(folder, ".safetensors")) {
      const SafetensorsFile& file = add_file(MappedFile::open(file_path));
      for (const SafetensorsFile::Entry& entry : file.entries()) {
        add(file, entry, world_size_found_);
        if (!entry.dtype) continue;
        const Shape& end = records.back().global_shape;
        Shape& known = whole.try_emplace(entry.name, end).first->second;
        if (known.size() != end.size()) {
          throw Error("{}: tensor '{}' has {} dimensions, in another file {}", file_path.string(), entry.name,
                      end.size(), known.size());
        }
        for (std::size_t d = 0; d < end.size(); ++d) known[d] = std::max(known[d], end[d]);
      }
      ++world_size_found_;
    }
    for (Record& record : records) {
      record.global_shape = whole.at(record.id.module);
      try {
        element_count(record.global_shape);
      } catch (const Error& problem) {
        throw Error("{}: tensor '{}': {}", path.string(), record.id.module, problem.what());
      }
    }
    world_size = world_size_found_;
    notes.push_back(
        fmt::format("{}: shards do not say how large a tensor is; taken to end with its last shard, so a "
                    "missing last file cannot be seen",
                    path.string()));
  }

 private:
  int world_size_found_ = 0;  // files stand for ranks: each holds a tensor once
};

}  // namespace

bool fits_safetensors_index(const std::shared_ptr<const MappedFile>& file) {
  const std::size_t at = file->text().find_first_not_of(" \n\t\r");
  return file->path().filename().string().ends_with(index_ending) && at != std::string_view::npos &&
         file->text()[at] == '{';
}

std::unique_ptr<Dump> open_safetensors_index(std::shared_ptr<const MappedFile> file,
                                             const OpenOptions& options) {
  return std::make_unique<IndexedDump>(file, options);
}

bool fits_safetensors_folder(const fs::path& folder) {
  if (!files_ending(folder, index_ending).empty() || is_one_file(folder)) return true;
  const std::vector<fs::path> files = files_ending(folder, ".safetensors");
  if (files.empty()) return false;
  const auto first = MappedFile::open(files.front());
  if (!fits_safetensors(first)) return false;
  const SafetensorsFile file(first);
  return !file.entries().empty() && file.offsets(file.entries().front()).has_value();
}

std::unique_ptr<Dump> open_safetensors_folder(const fs::path& folder, const OpenOptions& options) {
  const std::vector<fs::path> indices = files_ending(folder, index_ending);
  if (indices.empty() && is_one_file(folder)) return std::make_unique<OneFileDump>(folder, options);
  if (indices.empty()) return std::make_unique<ShardedDump>(folder, options);
  if (indices.size() > 1) {
    throw Error("{}: has the indices {} and {}, expected one: open the one that is meant", folder.string(),
                indices[0].filename().string(), indices[1].filename().string());
  }
  return std::make_unique<IndexedDump>(MappedFile::open(indices[0]), options);
}

}  // namespace assay
