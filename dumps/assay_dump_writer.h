#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "assay/dumps/assay_dump.h"
#include "assay/dumps/rank_writer.h"

namespace assay {

/// Writes an assay-dump, version 1, in HDF5. The files get their names when they are complete, manifest.json
/// last. Until then, or if the process dies, the folder is an unfinished dump: open_dump reads every tensor
/// whose add() has returned, and says that the rest is missing. (A power failure can lose more: only finish()
/// waits for the disk, unless it is told not to.)
///
///   AssayDumpWriter writer("run", {.world_size = 2, .mesh = {{"tp"}, {2}}});
///   writer.add(record, tensor);   // from any thread; in execution order within each rank
///   writer.finish();
class AssayDumpWriter {
 public:
  /// Throws Error if `folder` exists and is not empty, or cannot be made.
  AssayDumpWriter(std::filesystem::path folder, Manifest manifest);
  /// Leaves an unfinished dump if finish() was not called.
  ~AssayDumpWriter();
  AssayDumpWriter(const AssayDumpWriter&) = delete;
  AssayDumpWriter& operator=(const AssayDumpWriter&) = delete;

  /// Throws Error if the record does not describe the tensor or could not be read back, if its rank is not in
  /// the manifest, if its `seq` is not higher than the last one of the rank, or if the tensor cannot be
  /// written. After an Error the dump stays unfinished: add and finish throw.
  void add(const Record& record, const Tensor& tensor);
  /// Writes the sketch of what the record describes, in place of its values.
  void add(const Record& record, const Sketch&);
  void finish(Durability = Durability::disk);
  /// Removes the unfinished dump.
  void discard();

 private:
  struct Rank {
    std::unique_ptr<RankWriter> file;
    std::string index;
    std::int64_t last_seq = -1;
  };
  void add_checked(const Record&, const Tensor& content);
  Rank& rank(int number);
  static void write_tensor(Rank&, const Record&, const Tensor&);
  void check_writable() const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::mutex mutex_;
  std::map<int, Rank> ranks_;
  bool made_folder_ = false, finished_ = false, failed_ = false;
};

}  // namespace assay
