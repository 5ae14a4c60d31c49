#include "assay/dumps/assay_dump.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/hdf5/hdf5.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/record/readers.h"
#include "assay/dumps/safetensors.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::int64_t max_world_size = 1'000'000;

/// What a container holds of a record: its elements, or the values of its sketch.
struct Content {
  DType dtype;
  Shape shape;
  explicit Content(const Record& r)
      : dtype(r.sketch ? DType::float64 : r.dtype),
        shape(r.sketch ? Shape{r.sketch->spec.size()} : r.shape) {}
};

// A tensor's bits may lie in a container that has no name for their type.
void check_stored(const std::optional<DType>& stored, std::string_view type, const Shape& stored_shape,
                  const Content& content, std::string_view where) {
  const bool same = stored == content.dtype;
  const bool narrowed =
      stored == DType::float32 && (content.dtype == DType::tfloat32 || content.dtype == DType::hfloat32);
  const bool raw =
      stored && !is_float(*stored) && *stored != DType::boolean && size_of(*stored) == size_of(content.dtype);
  if ((!same && !narrowed && !raw) || stored_shape != content.shape) {
    throw Error("{}: the file holds {} of shape {}, the index says {} of shape {}", where, type,
                to_string(stored_shape), name(content.dtype), to_string(content.shape));
  }
}

/// Where the bits of one record lie: a name in its container, or bytes of an unfinished one.
struct Place {
  std::string name;
  std::optional<std::uint64_t> offset;
};

/// The file that holds a rank's tensors.
class Container {
 public:
  /// @param unfinished  the HDF5 file was never closed: its bits are there, but the library cannot read it
  Container(std::shared_ptr<const MappedFile> file, bool unfinished, const Log& log) {
    if (unfinished) {
      unfinished_ = std::move(file);
    } else if (file->path().extension() == ".h5") {
      hdf5_ = std::make_unique<Hdf5File>(std::move(file), log);
    } else {
      safetensors_ = std::make_unique<SafetensorsFile>(std::move(file));
    }
  }
  // Cheap for safetensors, whose header is parsed already; the others are checked when they are read.
  void check(const std::string& name, const Content& content, std::string_view where) {
    if (safetensors_ == nullptr) return;
    const auto* entry = safetensors_->find(name);
    if (entry == nullptr)
      throw Error("{}: the tensor '{}' is not in {}", where, name, safetensors_->file().path().string());
    check_stored(entry->dtype, entry->type, entry->shape, content, where);
    indexed_.insert(name);
  }
  TensorSource source(const Place& place, const Content& content, std::string_view where) const {
    if (unfinished_ != nullptr) {
      std::uint64_t size = size_of(content.dtype);
      for (const std::int64_t extent : content.shape) {
        if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size))
          throw Error("{}: its shape has more than 2^64 bytes", where);
      }
      return Tensor(content.dtype, content.shape, unfinished_->range(place.offset.value(), size, place.name),
                    unfinished_);
    }
    if (safetensors_ != nullptr) return safetensors_->read(*safetensors_->find(place.name), content.dtype);
    const Hdf5File::Dataset dataset = hdf5_->describe(place.name);
    check_stored(dataset.dtype, dataset.type, dataset.shape, content, where);
    return hdf5_->source(dataset, content.dtype);
  }
  std::string index_text() const { return hdf5_->read_text("index"); }
  /// Tensors that no index has a line for: an index that was cut off between two lines.
  void list_unindexed(std::vector<std::string>& left_out) const {
    if (safetensors_ == nullptr || indexed_.size() == safetensors_->entries().size()) return;
    for (const SafetensorsFile::Entry& entry : safetensors_->entries()) {
      if (indexed_.contains(entry.name)) continue;
      left_out.push_back(fmt::format("{}: tensor '{}' has no line in an index",
                                     safetensors_->file().path().string(), entry.name));
    }
  }

 private:
  std::shared_ptr<const MappedFile> unfinished_;
  std::unique_ptr<Hdf5File> hdf5_;
  std::unique_ptr<SafetensorsFile> safetensors_;
  std::set<std::string, std::less<>> indexed_;
};

class AssayDump : public Dump {
 public:
  AssayDump(const std::filesystem::path& folder, const Log& log) : log_(log) {
    path = folder;
    format = "assay-dump";
    const bool finished = exists(folder / "manifest.json");
    const auto manifest_file =
        MappedFile::open_in(folder, finished ? "manifest.json" : std::string(unfinished_manifest));
    const Manifest manifest = parse_manifest(manifest_file->text(), manifest_file->path().string());
    world_size = manifest.world_size;
    mesh = manifest.mesh;
    producer = manifest.producer;
    for (int rank = 0; rank < world_size; ++rank) {
      if (finished) {
        read_rank(rank);
      } else {
        read_unfinished_rank(rank);
      }
    }
    for (const auto& [name, container] : containers_) container.list_unindexed(left_out);
  }
  Tensor read(std::size_t index) const override { return source(index).whole(); }
  TensorSource source(std::size_t index) const override {
    if (records.at(index).sketch)
      throw Error("{}: only its sketch was recorded; expected its values", location(index));
    return content(index);
  }
  Sketch read_sketch(std::size_t index) const override {
    const Record& record = records.at(index);
    if (!record.sketch) return Dump::read_sketch(index);
    Sketch sketch = *record.sketch;
    sketch.values = content(index).whole().values();
    if (!std::ranges::all_of(sketch.values, [](double v) { return std::isfinite(v); }))
      throw Error("{}: the sketch holds NaN or infinities; expected finite numbers", location(index));
    return sketch;
  }
  std::string location(std::size_t index) const override {
    const auto& [container, place] = places_.at(index);
    if (container == containers_.end())
      return fmt::format("{}: {}", (path / rank_stem(records[index].rank)).string(),
                         to_string(records[index].id));
    return fmt::format("{}: {}", (path / container->first).string(), place.name);
  }

 private:
  using Containers = std::map<std::string, Container, std::less<>>;

  TensorSource content(std::size_t index) const {
    const auto& [container, place] = places_.at(index);
    if (container == containers_.end())
      throw Error("{}: its values were not recorded, only what was computed of them", location(index));
    return container->second.source(place, Content(records[index]), location(index));
  }

  Containers::iterator container(std::string_view file, bool unfinished) {
    const auto known = containers_.find(file);
    if (known != containers_.end()) return known;
    return containers_.try_emplace(std::string(file), MappedFile::open_in(path, file), unfinished, log_)
        .first;
  }

  void read_rank(int rank) {
    const std::string stem = rank_stem(rank);
    const bool has_h5 = exists(path / (stem + ".h5")), has_jsonl = exists(path / (stem + ".jsonl"));
    if (has_h5 == has_jsonl) {
      throw Error("{}: rank {} of {} has {}, expected either {}.h5 or {}.jsonl with {}.safetensors",
                  path.string(), rank, world_size,
                  has_h5 ? "both containers" : "no file: the dump is incomplete", stem, stem, stem);
    }
    if (has_h5) {
      read_index(container(stem + ".h5", false)->second.index_text(),
                 (path / (stem + ".h5")).string() + ": /index", rank);
    } else {
      const auto index = MappedFile::open_in(path, stem + ".jsonl");
      read_index(index->text(), index->path().string(), rank);
    }
  }

  // Its writer was killed, or is still at work. Every whole line of a journal stands for a tensor that was
  // written before it.
  void read_unfinished_rank(int rank) {
    const std::string stem = rank_stem(rank), journal = stem + std::string(unfinished_index);
    const std::size_t first = records.size();
    if (exists(path / journal)) {
      const std::string whole = stem + ".h5", part = whole + std::string(unfinished_ending);
      const auto index = MappedFile::open_in(path, journal);
      const std::string_view lines = index->text().substr(0, index->text().rfind('\n') + 1);
      read_index(lines, index->path().string(), rank, exists(path / whole) ? whole : part);
    } else if (exists(path / (stem + ".h5")) || exists(path / (stem + ".jsonl"))) {
      read_rank(rank);
    }
    left_out.push_back(fmt::format(
        "{}: the recording did not finish: rank {} of {} has {}; what followed is missing", path.string(),
        rank, world_size,
        records.size() == first
            ? "no tensor"
            : fmt::format("{} {}, the last is {}", records.size() - first,
                          records.size() - first == 1 ? "tensor" : "tensors", to_string(records.back().id))));
  }

  /// @param journal_of  the file that a journal's lines are about; empty: lines name their files
  void read_index(std::string_view text, const std::string& where, int rank,
                  const std::string& journal_of = "") {
    if (!text.empty() && text.back() != '\n')
      throw Error("{}: the last line is cut off: the file is truncated", where);
    const auto first = static_cast<std::ptrdiff_t>(records.size());
    std::string file;
    Containers::iterator open_container;
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::size_t end = text.find('\n');
      const std::string line = fmt::format("{}: line {}", where, number);
      const Json entry = parse_json(text.substr(0, end), line);
      text.remove_prefix(end + 1);
      Record record = parse_index_entry(entry, line, rank, mesh);
      if (!record.has_bits && !record.sketch) {
        records.push_back(std::move(record));
        places_.emplace_back(containers_.end(), Place{});
        continue;
      }
      const Json& data = entry.at("data", line);
      const std::string& data_file =
          journal_of.empty() ? data.at("file", line).string(line + ": data.file") : journal_of;
      Place place{data.at("name", line).string(line + ": data.name"), {}};
      if (!journal_of.empty()) {
        const std::int64_t offset = data.at("offset", line).integer(line + ": data.offset");
        if (offset < 0) throw Error("{}: data.offset is {}, expected at least 0", line, offset);
        place.offset = static_cast<std::uint64_t>(offset);
      }
      if (data_file != file || file.empty()) {
        open_container = container(data_file, !journal_of.empty());
        file = data_file;
      }
      open_container->second.check(place.name, Content(record), line);
      records.push_back(std::move(record));
      places_.emplace_back(open_container, std::move(place));
    }
    // Lines are written in execution order; a recorder that merges streams may not.
    if (!std::is_sorted(records.begin() + first, records.end(),
                        [](auto& a, auto& b) { return a.seq < b.seq; })) {
      throw Error("{}: the lines are not in the order of seq", where);
    }
  }

  const Log log_;
  Containers containers_;
  std::vector<std::pair<Containers::const_iterator, Place>> places_;
};

}  // namespace

std::string rank_stem(int rank) {
  return fmt::format("rank{:05}", rank);
}

Manifest parse_manifest(std::string_view text, std::string_view where) {
  const Json json = parse_json(text, where);
  if (json.at("format", where).string(where) != "assay-dump" ||
      json.at("version", where).integer(where) != 1) {
    throw Error("{}: not the manifest of an assay-dump, version 1", where);
  }
  Manifest manifest;
  const std::int64_t ranks = json.at("world_size", where).integer(where);
  if (ranks < 1 || ranks > max_world_size)
    throw Error("{}: world_size is {}, expected 1 to {}", where, ranks, max_world_size);
  manifest.world_size = static_cast<int>(ranks);
  if (const Json* mesh = json.find("mesh")) {
    for (const Json& dim : mesh->at("dims", where).array(where))
      manifest.mesh.dims.push_back(dim.string(where));
    manifest.mesh.shape = mesh->at("shape", where).shape(where);
    if (manifest.mesh.dims.size() != manifest.mesh.shape.size() ||
        element_count(manifest.mesh.shape) != ranks) {
      throw Error("{}: a mesh [{}] of shape {} does not hold {} ranks", where,
                  fmt::join(manifest.mesh.dims, ", "), to_string(manifest.mesh.shape), ranks);
    }
  }
  if (const Json* producer = json.find("producer")) {
    producer->object(where);
    manifest.producer = producer->text();
  }
  return manifest;
}

bool fits_assay_dump(const std::filesystem::path& folder) {
  std::filesystem::path manifest = folder / "manifest.json";
  if (!exists(manifest)) manifest = folder / unfinished_manifest;
  if (!exists(manifest)) return false;
  const auto file = MappedFile::open(manifest);
  const Json json = parse_json(file->text(), manifest.string());
  const Json* format = json.find("format");
  return format != nullptr && format->is_string() && format->string("") == "assay-dump";
}

std::unique_ptr<Dump> open_assay_dump(const std::filesystem::path& folder, const OpenOptions& options) {
  return std::make_unique<AssayDump>(folder, options.log);
}

}  // namespace assay
