#include "assay/dumps/assay_dump_writer.h"

#include <fmt/core.h>

#include <fstream>

#include "assay/dumps/json.h"
#include "assay/dumps/layout.h"
#include "assay/dumps/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

Json numbers(const Shape& shape) {
  Json::Array items;
  for (const std::int64_t extent : shape) items.push_back({extent});
  return {std::move(items)};
}

Json texts(const std::vector<std::string>& words) {
  Json::Array items;
  for (const std::string& word : words) items.push_back({word});
  return {std::move(items)};
}

// The fields in the order of the format's description; those that say nothing are left out.
Json index_entry(const Record& record, const std::string& file, const std::string& dataset) {
  Json::Object line;
  const auto add = [&](const char* key, Json value) { line.push_back({key, std::move(value)}); };
  add("seq", {record.seq});
  add("step", {record.id.step});
  add("micro_batch", {record.id.micro_batch});
  if (record.id.phase != Phase::none) add("phase", {std::string(name(record.id.phase))});
  add("module", {record.id.module});
  if (!record.op.empty()) add("op", {record.op});
  if (!record.id.slot.empty()) add("slot", {record.id.slot});
  add("arg", {record.id.arg});
  add("call", {record.id.call});
  if (record.count) add("count", {*record.count});
  add("dtype", {std::string(name(record.dtype))});
  add("shape", numbers(record.shape));
  add("global_shape", numbers(record.global_shape));
  if (!record.placements.empty()) {
    std::vector<std::string> words;
    for (const Placement& placement : record.placements) words.push_back(to_string(placement));
    add("placements", texts(words));
  }
  if (!record.mesh_coordinate.empty()) add("mesh_coordinate", numbers(record.mesh_coordinate));
  if (record.offsets) add("offsets", numbers(*record.offsets));
  if (record.flattened_range)
    add("flattened_range", numbers({record.flattened_range->first, record.flattened_range->last}));
  if (record.cut) add("cut", numbers(*record.cut));
  add("data", {Json::Object{{"file", {file}}, {"name", {dataset}}}});
  return {std::move(line)};
}

std::string manifest_text(const Manifest& manifest) {
  Json::Object text = {{"format", {std::string("assay-dump")}},
                       {"version", {std::int64_t{1}}},
                       {"world_size", {std::int64_t{manifest.world_size}}}};
  if (!manifest.mesh.dims.empty()) {
    text.push_back({"mesh", Json{Json::Object{{"dims", texts(manifest.mesh.dims)},
                                              {"shape", numbers(manifest.mesh.shape)}}}});
  }
  if (!manifest.producer.empty()) text.push_back({"producer", parse_json(manifest.producer, "producer")});
  return Json{std::move(text)}.text() + "\n";
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code problem;
  std::filesystem::rename(from, to, problem);
  if (problem) throw Error("{}: cannot be renamed to {}: {}", from.string(), to.string(), problem.message());
}

}  // namespace

AssayDumpWriter::AssayDumpWriter(std::filesystem::path folder, Manifest manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)) {
  parse_manifest(manifest_text(manifest_), folder_.string());
  std::error_code problem;
  std::filesystem::create_directories(folder_, problem);
  if (problem) throw Error("{}: cannot be created: {}", folder_.string(), problem.message());
  const bool is_empty = std::filesystem::is_empty(folder_, problem);
  if (problem || !is_empty)
    throw Error("{}: is not empty; a dump is written to a new folder only", folder_.string());
}

AssayDumpWriter::~AssayDumpWriter() {
  if (finished_) return;
  std::error_code ignored;
  for (auto& [number, rank] : ranks_) {
    rank.file.reset();
    std::filesystem::remove(unfinished(number), ignored);
    std::filesystem::remove(folder_ / (rank_stem(number) + ".h5"), ignored);
  }
}

std::filesystem::path AssayDumpWriter::unfinished(int rank) const {
  return folder_ / (rank_stem(rank) + ".h5.unfinished");
}

AssayDumpWriter::Rank& AssayDumpWriter::rank(int number) {
  Rank& rank = ranks_[number];
  if (rank.file == nullptr) rank.file = std::make_unique<Hdf5Writer>(unfinished(number));
  return rank;
}

void AssayDumpWriter::add(const Record& record, const Tensor& tensor) {
  if (tensor.dtype() != record.dtype || tensor.shape() != record.shape) {
    throw Error("{}: the record says {} of shape {}, the tensor is {} of {}", to_string(record.id),
                name(record.dtype), to_string(record.shape), name(tensor.dtype()), to_string(tensor.shape()));
  }
  if (record.rank < 0 || record.rank >= manifest_.world_size) {
    throw Error("{}: rank {} is not in a world of {}", to_string(record.id), record.rank,
                manifest_.world_size);
  }
  if (!record.rows) pieces_of(record, manifest_.mesh);
  check_names(record, folder_.string());
  const std::lock_guard lock(mutex_);
  if (finished_) throw Error("{}: the dump is finished", folder_.string());
  Rank& target = rank(record.rank);
  if (record.seq <= target.last_seq) {
    throw Error("{}: seq {} on rank {} follows {}, expected a higher one", to_string(record.id), record.seq,
                record.rank, target.last_seq);
  }
  const std::string dataset = fmt::format("/t/{:08}", target.tensors++);
  const std::string line = index_entry(record, rank_stem(record.rank) + ".h5", dataset).text();
  target.file->write(dataset, tensor);
  target.index.append(line).append("\n");
  target.last_seq = record.seq;
}

void AssayDumpWriter::finish() {
  const std::lock_guard lock(mutex_);
  for (int number = 0; number < manifest_.world_size; ++number) {
    Rank& target = rank(number);
    target.file->write_text("/index", target.index);
    target.file->close();
    rename_file(unfinished(number), folder_ / (rank_stem(number) + ".h5"));
  }
  const std::filesystem::path manifest = folder_ / "manifest.json",
                              unfinished = folder_ / "manifest.json.unfinished";
  std::ofstream stream(unfinished);
  stream << manifest_text(manifest_);
  stream.close();
  if (!stream) throw Error("{}: cannot be written; is the disk full?", unfinished.string());
  sync_to_disk(unfinished);
  rename_file(unfinished, manifest);
  sync_to_disk(folder_);
  finished_ = true;
}

}  // namespace assay
