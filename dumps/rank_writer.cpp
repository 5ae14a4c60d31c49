#include "assay/dumps/rank_writer.h"

#include <fmt/core.h>

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/io/unfinished.h"
#include "assay/dumps/io/whole_file.h"
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

void sync(const std::filesystem::path& path, Durability durability) {
  if (durability == Durability::disk) sync_to_disk(path);
}

}  // namespace

RankWriter::RankWriter(const std::filesystem::path& folder, int rank)
    : folder_(folder), stem_(rank_stem(rank)), file_(stem_ + ".h5") {
  std::error_code ignored;
  std::filesystem::remove(part(unfinished_index), ignored);
  hdf5_ = std::make_unique<Hdf5Writer>(part(".h5" + std::string(unfinished_ending)));
}

RankWriter::~RankWriter() = default;

std::filesystem::path RankWriter::part(std::string_view ending) const {
  return folder_ / (stem_ + std::string(ending));
}

RankWriter::Place RankWriter::write(const Tensor& tensor) {
  Place place{fmt::format("/t/{:08}", tensors_++)};
  place.offset = hdf5_->write(place.dataset, tensor);
  return place;
}

void RankWriter::journal(std::string_view line) {
  append_text(part(unfinished_index), std::string(line) + "\n");
}

void RankWriter::finish(std::string_view index, Durability durability) {
  const std::filesystem::path unfinished = part(".h5" + std::string(unfinished_ending));
  hdf5_->write_text("/index", index);
  hdf5_->close();
  sync(unfinished, durability);
  rename_file(unfinished, part(".h5"));
}

void RankWriter::remove_journal() const {
  std::error_code ignored;
  std::filesystem::remove(part(unfinished_index), ignored);
}

void RankWriter::discard() {
  hdf5_.reset();
  std::error_code ignored;
  std::filesystem::remove(part(".h5"), ignored);
  std::filesystem::remove(part(".h5" + std::string(unfinished_ending)), ignored);
  remove_journal();
}

bool begin_dump(const std::filesystem::path& folder, const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  parse_manifest(text, folder.string());
  std::error_code problem;
  const bool made_folder = std::filesystem::create_directories(folder, problem);
  if (problem) throw Error("{}: cannot be created: {}", folder.string(), problem.message());
  const bool is_empty = std::filesystem::is_empty(folder, problem);
  if (problem || !is_empty)
    throw Error("{}: is not empty; a dump is written to a new folder only", folder.string());
  write_whole(folder / unfinished_manifest, text);
  return made_folder;
}

void finish_dump(const std::filesystem::path& folder, Durability durability) {
  const std::filesystem::path manifest = folder / unfinished_manifest;
  sync(manifest, durability);
  sync(folder, durability);
  rename_file(manifest, folder / "manifest.json");
  sync(folder, durability);
}

}  // namespace assay
