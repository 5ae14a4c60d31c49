#include "assay/dumps/assay_dump_writer.h"

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/layout/layout.h"
#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {

AssayDumpWriter::AssayDumpWriter(std::filesystem::path folder, Manifest manifest)
    : folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      made_folder_(begin_dump(folder_, manifest_)) {}

AssayDumpWriter::~AssayDumpWriter() = default;

void AssayDumpWriter::discard() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  failed_ = true;
  std::error_code ignored;
  for (auto& [number, rank] : ranks_) {
    if (rank.file != nullptr) rank.file->discard();
  }
  std::filesystem::remove(folder_ / unfinished_manifest, ignored);
  if (made_folder_) std::filesystem::remove(folder_, ignored);
}

AssayDumpWriter::Rank& AssayDumpWriter::rank(int number) {
  Rank& rank = ranks_[number];
  if (rank.file == nullptr) rank.file = std::make_unique<RankWriter>(folder_, number);
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
  add_checked(record, tensor);
}

void AssayDumpWriter::add(const Record& record, const Sketch& sketch) {
  if (sketch.shape != shape_of(record))
    throw Error("{}: the record says it is of {}, the sketch is of {}", to_string(record.id),
                to_string(shape_of(record)), to_string(sketch.shape));
  Record sketched = record;
  sketched.sketch = std::make_shared<const Sketch>(sketch);
  add_checked(sketched, Tensor({sketch.spec.size()}, std::span<const double>(sketch.values)));
}

// `content` are the elements, or the values of the sketch.
void AssayDumpWriter::add_checked(const Record& record, const Tensor& content) {
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
    write_tensor(target, record, content);
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void AssayDumpWriter::write_tensor(Rank& target, const Record& record, const Tensor& tensor) {
  const auto [dataset, offset] = target.file->write(tensor);
  target.file->journal(index_entry(record, target.file->file(), dataset, offset).text());
  target.index.append(index_entry(record, target.file->file(), dataset).text()).append("\n");
  target.last_seq = record.seq;
}

void AssayDumpWriter::finish(Durability durability) {
  const std::lock_guard lock(mutex_);
  check_writable();
  failed_ = true;  // unless all goes well
  for (int number = 0; number < manifest_.world_size; ++number) {
    Rank& target = rank(number);
    target.file->finish(target.index, durability);
  }
  finish_dump(folder_, durability);
  finished_ = true;
  for (auto& [number, rank] : ranks_) rank.file->remove_journal();
}

}  // namespace assay
