#pragma once

#include "assay/align/ranks/communicator.h"
#include "assay/align/settings/selection.h"
#include "assay/dumps/assay_dump_writer.h"

namespace assay::align {

/// Where a rank's records go: to a writer in the same process, or to rank 0, which has one.
class RecordSink {
 public:
  /// @param writer     nullptr: rank 0 of the communicator has it
  /// @param selection  what is kept
  RecordSink(AssayDumpWriter* writer, Communicator& communicator, Selection selection = {})
      : writer_(writer), communicator_(communicator), selection_(std::move(selection)) {}

  void add(const Record&, const Tensor&);
  /// Rank 0 writes what ranks without a writer have sent since the last time. All ranks must call it.
  /// @param mesh     of the dump
  /// @param senders  the ranks without a writer
  void collect(const assay::Mesh& mesh, const std::vector<int>& senders);

 private:
  AssayDumpWriter* writer_;
  Communicator& communicator_;
  const Selection selection_;
  std::int64_t sent_ = 0;
};

}  // namespace assay::align
