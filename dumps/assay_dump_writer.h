#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "assay/dumps/assay_dump.h"
#include "assay/dumps/hdf5_writer.h"

namespace assay {

/// Writes an assay-dump, version 1, in HDF5. Files get their names only when they are complete, manifest.json
/// last of all: a folder without it is no dump, so that an unfinished one is never taken for a whole one.
///
///   AssayDumpWriter writer("run", {.world_size = 2, .mesh = {{"tp"}, {2}}});
///   writer.add(record, tensor);   // from any thread; in execution order within each rank
///   writer.finish();
class AssayDumpWriter {
 public:
  /// Throws Error if `folder` exists and is not empty, or cannot be made.
  AssayDumpWriter(std::filesystem::path folder, Manifest manifest);
  /// Removes what an unfinished dump left.
  ~AssayDumpWriter();
  AssayDumpWriter(const AssayDumpWriter&) = delete;
  AssayDumpWriter& operator=(const AssayDumpWriter&) = delete;

  /// Throws Error if the record does not describe the tensor, its rank is not in the manifest or its `seq` is
  /// not higher than the last one of its rank.
  void add(const Record& record, const Tensor& tensor);
  void finish();

 private:
  struct Rank {
    std::unique_ptr<Hdf5Writer> file;
    std::string index;
    std::int64_t tensors = 0, last_seq = -1;
  };
  Rank& rank(int number);
  std::filesystem::path unfinished(int rank) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::mutex mutex_;
  std::map<int, Rank> ranks_;
  bool finished_ = false;
};

}  // namespace assay
