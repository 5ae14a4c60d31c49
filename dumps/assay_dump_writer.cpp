#include "assay/dumps/assay_dump_writer.h"

#include <fmt/core.h>

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/io/unfinished.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/dumps/layout/layout.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::string manifest_text(const Manifest& manifest) {
  Json::Object text = {{"format", {std::string("assay-dump")}},
                       {"version", {std::int64_t{1}}},
                       {"world_size", {std::int64_t{manifest.world_size}}}};
  if (!manifest.mesh.dims.empty()) {
    text.push_back({"mesh", Json{Json::Object{{"dims", json_texts(manifest.mesh.dims)},
                                              {"shape", json_numbers(manifest.mesh.shape)}}}});
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
  const std::string text = manifest_text(manifest_);
  parse_manifest(text, folder_.string());
  std::error_code problem;
  made_folder_ = std::filesystem::create_directories(folder_, problem);
  if (problem) throw Error("{}: cannot be created: {}", folder_.string(), problem.message());
  const bool is_empty = std::filesystem::is_empty(folder_, problem);
  if (problem || !is_empty)
    throw Error("{}: is not empty; a dump is written to a new folder only", folder_.string());
  write_whole(folder_ / unfinished_manifest, text);
}

AssayDumpWriter::~AssayDumpWriter() = default;

void AssayDumpWriter::discard() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  failed_ = true;
  std::error_code ignored;
  for (auto& [number, rank] : ranks_) {
    rank.file.reset();
    for (const auto& path : {finished(number), unfinished(number), journal(number)})
      std::filesystem::remove(path, ignored);
  }
  std::filesystem::remove(folder_ / unfinished_manifest, ignored);
  if (made_folder_) std::filesystem::remove(folder_, ignored);
}

std::filesystem::path AssayDumpWriter::finished(int rank) const {
  return folder_ / (rank_stem(rank) + ".h5");
}

std::filesystem::path AssayDumpWriter::unfinished(int rank) const {
  return folder_ / (rank_stem(rank) + ".h5" + std::string(unfinished_ending));
}

std::filesystem::path AssayDumpWriter::journal(int rank) const {
  return folder_ / (rank_stem(rank) + std::string(unfinished_index));
}

AssayDumpWriter::Rank& AssayDumpWriter::rank(int number) {
  Rank& rank = ranks_[number];
  if (rank.file == nullptr) rank.file = std::make_unique<Hdf5Writer>(unfinished(number));
  return rank;
}

void AssayDumpWriter::check_writable() const {
  if (finished_) throw Error("{}: the dump is finished", folder_.string());
  if (failed_) throw Error("{}: writing failed before, and the dump stays unfinished", folder_.string());
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
  // What the reader would refuse must not get into a dump that looks whole.
  const std::string where = folder_.string() + ": " + to_string(record.id);
  const Json entry = index_entry(record, "", "");
  parse_index_entry(entry, where, record.rank, manifest_.mesh);
  static_cast<void>(entry.text());  // throws for what is no UTF-8
  const std::lock_guard lock(mutex_);
  check_writable();
  Rank& target = rank(record.rank);
  if (record.seq <= target.last_seq) {
    throw Error("{}: seq {} on rank {} follows {}, expected a higher one", to_string(record.id), record.seq,
                record.rank, target.last_seq);
  }
  try {
    write_tensor(target, record, tensor);
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void AssayDumpWriter::write_tensor(Rank& target, const Record& record, const Tensor& tensor) {
  const std::string file = rank_stem(record.rank) + ".h5";
  const std::string dataset = fmt::format("/t/{:08}", target.tensors++);
  const std::uint64_t offset = target.file->write(dataset, tensor);
  append_text(journal(record.rank), index_entry(record, file, dataset, offset).text() + "\n");
  target.index.append(index_entry(record, file, dataset).text()).append("\n");
  target.last_seq = record.seq;
}

void AssayDumpWriter::finish(Durability durability) {
  const auto sync = [durability](const std::filesystem::path& path) {
    if (durability == Durability::disk) sync_to_disk(path);
  };
  const std::lock_guard lock(mutex_);
  check_writable();
  failed_ = true;  // unless all goes well
  for (int number = 0; number < manifest_.world_size; ++number) {
    Rank& target = rank(number);
    target.file->write_text("/index", target.index);
    target.file->close();
    sync(unfinished(number));
    rename_file(unfinished(number), finished(number));
  }
  const std::filesystem::path manifest = folder_ / unfinished_manifest;
  sync(manifest);
  sync(folder_);
  rename_file(manifest, folder_ / "manifest.json");
  sync(folder_);
  finished_ = true;
  // Beside a manifest they mean nothing.
  std::error_code ignored;
  for (int number = 0; number < manifest_.world_size; ++number)
    std::filesystem::remove(journal(number), ignored);
}

}  // namespace assay
