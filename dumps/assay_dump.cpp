#include "assay/dumps/assay_dump.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "assay/dumps/hdf5.h"
#include "assay/dumps/json.h"
#include "assay/dumps/readers.h"
#include "assay/dumps/safetensors.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::int64_t max_ranks = 1'000'000;
// What every producer's JSON library writes exactly.
constexpr std::int64_t max_number = std::int64_t{1} << 53;
constexpr std::string_view slots[] = {"input", "output", "grad_input", "grad_output",
                                      "param", "grad",   "state",      "loss"};

Phase parse_phase(std::string_view text, std::string_view where) {
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    if (text == name(phase)) return phase;
  }
  throw Error("{}: phase '{}', expected forward, backward or optimizer", where, text);
}

// A tensor's bits may lie in a container that has no name for their type.
void check_stored(const std::optional<DType>& stored, std::string_view type, const Shape& stored_shape,
                  const Record& record, std::string_view where) {
  const bool same = stored == record.dtype;
  const bool narrowed =
      stored == DType::float32 && (record.dtype == DType::tfloat32 || record.dtype == DType::hfloat32);
  const bool raw =
      stored && !is_float(*stored) && *stored != DType::boolean && size_of(*stored) == size_of(record.dtype);
  if ((!same && !narrowed && !raw) || stored_shape != record.shape) {
    throw Error("{}: the file holds {} of shape {}, the index says {} of shape {}", where, type,
                to_string(stored_shape), name(record.dtype), to_string(record.shape));
  }
}

/// The file that holds a rank's tensors.
class Container {
 public:
  explicit Container(std::shared_ptr<const MappedFile> file) {
    if (file->path().extension() == ".h5") {
      hdf5_ = std::make_unique<Hdf5File>(std::move(file));
    } else {
      safetensors_ = std::make_unique<SafetensorsFile>(std::move(file));
    }
  }
  // Cheap for safetensors, whose header is parsed already; HDF5 datasets are checked when they are read.
  void check(const std::string& name, const Record& record, std::string_view where) const {
    if (safetensors_ == nullptr) return;
    const auto* entry = safetensors_->find(name);
    if (entry == nullptr)
      throw Error("{}: the tensor '{}' is not in {}", where, name, safetensors_->file().path().string());
    check_stored(entry->dtype, entry->type, entry->shape, record, where);
  }
  Tensor read(const std::string& name, const Record& record, std::string_view where) const {
    if (safetensors_ != nullptr) return safetensors_->read(*safetensors_->find(name), record.dtype);
    const Hdf5File::Dataset dataset = hdf5_->describe(name);
    check_stored(dataset.dtype, dataset.type, dataset.shape, record, where);
    return hdf5_->read(dataset, record.dtype);
  }
  std::string index_text() const { return hdf5_->read_text("index"); }

 private:
  std::unique_ptr<Hdf5File> hdf5_;
  std::unique_ptr<SafetensorsFile> safetensors_;
};

class AssayDump : public Dump {
 public:
  explicit AssayDump(const std::filesystem::path& folder) {
    path = folder;
    format = "assay-dump";
    const auto manifest_file = MappedFile::open_in(folder, "manifest.json");
    const Manifest manifest = parse_manifest(manifest_file->text(), manifest_file->path().string());
    world_size = manifest.world_size;
    mesh = manifest.mesh;
    producer = manifest.producer;
    for (int rank = 0; rank < world_size; ++rank) read_rank(rank);
  }
  Tensor read(std::size_t index) const override {
    const Place& place = places_.at(index);
    return place.container->second.read(place.name, records[index], location(index));
  }
  std::string location(std::size_t index) const override {
    const Place& place = places_.at(index);
    return fmt::format("{}: {}", (path / place.container->first).string(), place.name);
  }

 private:
  using Containers = std::map<std::string, Container, std::less<>>;
  struct Place {
    Containers::const_iterator container;
    std::string name;
  };

  Containers::const_iterator container(std::string_view file) {
    const auto known = containers_.find(file);
    if (known != containers_.end()) return known;
    return containers_.try_emplace(std::string(file), MappedFile::open_in(path, file)).first;
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
      read_index(container(stem + ".h5")->second.index_text(), (path / (stem + ".h5")).string() + ": /index",
                 rank);
    } else {
      const auto index = MappedFile::open_in(path, stem + ".jsonl");
      read_index(index->text(), index->path().string(), rank);
    }
  }

  void read_index(std::string_view text, const std::string& where, int rank) {
    if (!text.empty() && text.back() != '\n')
      throw Error("{}: the last line is cut off: the file is truncated", where);
    const auto first = static_cast<std::ptrdiff_t>(records.size());
    std::string file;
    Containers::const_iterator open_container;
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::size_t end = text.find('\n');
      const std::string line = fmt::format("{}: line {}", where, number);
      const Json entry = parse_json(text.substr(0, end), line);
      text.remove_prefix(end + 1);
      Record record = parse_record(entry, line, rank);
      const Json& data = entry.at("data", line);
      const std::string& data_file = data.at("file", line).string(line + ": data.file");
      std::string name = data.at("name", line).string(line + ": data.name");
      if (data_file != file || file.empty()) {
        open_container = container(data_file);
        file = data_file;
      }
      open_container->second.check(name, record, line);
      records.push_back(std::move(record));
      places_.push_back({open_container, std::move(name)});
    }
    // Lines are written in execution order; a recorder that merges streams may not.
    if (!std::is_sorted(records.begin() + first, records.end(),
                        [](auto& a, auto& b) { return a.seq < b.seq; })) {
      throw Error("{}: the lines are not in the order of seq", where);
    }
  }

  Record parse_record(const Json& entry, const std::string& where, int rank) const {
    const auto number = [&](std::string_view key, const Json& json) {
      const std::int64_t value = json.integer(fmt::format("{}: {}", where, key));
      if (value < -1 || value > max_number)
        throw Error("{}: {} is {}, expected -1 to 2^53", where, key, value);
      return value;
    };
    const auto optional_number = [&](std::string_view key, std::int64_t otherwise) {
      const Json* value = entry.find(key);
      return value == nullptr || value->is_null() ? otherwise : number(key, *value);
    };
    const auto text = [&](std::string_view key) -> const std::string& {
      const Json& value = entry.at(key, where);
      if (!value.is_string()) throw Error("{}: {} is {}, expected a string", where, key, value.kind());
      return value.string(where);
    };
    Record record;
    record.rank = rank;
    record.seq = number("seq", entry.at("seq", where));
    record.id.step = number("step", entry.at("step", where));
    record.id.micro_batch = optional_number("micro_batch", -1);
    // Tensors that were converted from plain files have neither phase nor slot.
    if (entry.find("phase") != nullptr) record.id.phase = parse_phase(text("phase"), where);
    record.id.module = text("module");
    if (entry.find("slot") != nullptr) record.id.slot = text("slot");
    record.id.call = optional_number("call", 0);
    if (const Json* arg = entry.find("arg"); arg != nullptr && !arg->is_null()) {
      record.id.arg = arg->is_string() ? arg->string(where) : std::to_string(arg->integer(where + ": arg"));
    }
    if (const Json* op = entry.find("op"); op != nullptr && !op->is_null())
      record.op = op->string(where + ": op");
    if (const Json* count = entry.find("count"); count != nullptr && !count->is_null()) {
      record.count = number("count", *count);
    }
    if (entry.find("slot") != nullptr &&
        std::find(std::begin(slots), std::end(slots), record.id.slot) == std::end(slots)) {
      throw Error("{}: slot '{}', expected one of {}", where, record.id.slot, fmt::join(slots, ", "));
    }
    const std::optional<DType> dtype = parse_dtype(text("dtype"));
    if (!dtype) throw Error("{}: dtype '{}' is unknown", where, text("dtype"));
    record.dtype = *dtype;
    record.shape = entry.at("shape", where).shape(where + ": shape");
    const Json* global = entry.find("global_shape");
    record.global_shape = global == nullptr ? record.shape : global->shape(where + ": global_shape");
    parse_layout(entry, where, record);
    return record;
  }

  void parse_layout(const Json& entry, const std::string& where, Record& record) const {
    if (const Json* placements = entry.find("placements")) {
      for (const Json& word : placements->array(where + ": placements")) {
        try {
          record.placements.push_back(parse_placement(word.string(where + ": placements")));
        } catch (const Error& problem) {
          throw Error("{}: {}", where, problem.what());
        }
      }
    }
    if (const Json* coordinate = entry.find("mesh_coordinate")) {
      record.mesh_coordinate = coordinate->shape(where + ": mesh_coordinate");
    }
    if (const Json* offsets = entry.find("offsets"); offsets != nullptr && !offsets->is_null()) {
      record.offsets = offsets->shape(where + ": offsets");
    }
    if (const Json* range = entry.find("flattened_range"); range != nullptr && !range->is_null()) {
      const Shape ends = range->shape(where + ": flattened_range");
      if (ends.size() != 2 || ends[0] > ends[1] || record.shape != Shape{ends[1] - ends[0]})
        throw Error(
            "{}: flattened_range is {} and shape {}; expected [first, last] and a flat tensor of last - "
            "first",
            where, to_string(ends), to_string(record.shape));
      record.flattened_range = {ends[0], ends[1]};
    }
    if (const Json* cut = entry.find("cut"); cut != nullptr && !cut->is_null())
      record.cut = cut->shape(where + ": cut");
    const std::size_t rank = record.global_shape.size();
    bool fits = (record.flattened_range ? !record.offsets : record.shape.size() == rank) &&
                (!record.offsets || record.offsets->size() == rank) &&
                (!record.cut || record.cut->size() == rank);
    fits = fits && (record.placements.empty() || record.placements.size() == mesh.dims.size());
    fits = fits && record.mesh_coordinate.size() ==
                       (record.placements.empty() && record.mesh_coordinate.empty() ? 0 : mesh.dims.size());
    for (const Placement& placement : record.placements)
      fits = fits && placement.dim < static_cast<int>(std::max<std::size_t>(rank, 1));
    for (std::size_t d = 0; fits && d < record.mesh_coordinate.size(); ++d)
      fits = record.mesh_coordinate[d] < mesh.shape[d];
    if (!fits) {
      throw Error(
          "{}: shape, global_shape, placements, mesh_coordinate and offsets do not fit each other or the "
          "mesh [{}] of shape {}",
          where, fmt::join(mesh.dims, ", "), to_string(mesh.shape));
    }
  }

  Containers containers_;
  std::vector<Place> places_;
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
  if (ranks < 1 || ranks > max_ranks)
    throw Error("{}: world_size is {}, expected 1 to {}", where, ranks, max_ranks);
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
  const std::filesystem::path manifest = folder / "manifest.json";
  if (!exists(manifest)) return false;
  const auto file = MappedFile::open(manifest);
  const Json json = parse_json(file->text(), manifest.string());
  const Json* format = json.find("format");
  return format != nullptr && format->is_string() && format->string("") == "assay-dump";
}

std::unique_ptr<Dump> open_assay_dump(const std::filesystem::path& folder, const OpenOptions&) {
  return std::make_unique<AssayDump>(folder);
}

}  // namespace assay
