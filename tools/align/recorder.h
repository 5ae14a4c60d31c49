#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "assay/align/plan.h"
#include "assay/align/tape.h"
#include "assay/dumps/assay_dump_writer.h"

namespace assay::align {

/// The manifest of a replay's dump: its mesh is pp, dp, cp, tp.
Manifest manifest_of(const Parallel&, const std::string& producer);

/// Writes what a rank of a replay computes to an assay-dump: the inputs and outputs of every module, their
/// gradients, parameters, their gradients, optimizer states and losses, each with its layout. Calls that only
/// move elements (reshape, transpose, slice, ..) are left out, and so are the rows of experts on several
/// ranks, which are of several micro-batches. A sum of which ranks have shares is written where it is
/// complete.
class Recorder {
 public:
  /// @param writer  of all ranks
  Recorder(AssayDumpWriter& writer, const Mesh& mesh) : writer_(writer), mesh_(mesh) {}

  void begin(std::int64_t step, std::int64_t micro_batch);
  void forward(const Tape&);
  void backward(const Tape&, const Machine::Node&, const std::vector<NamedTensor>& of_outputs,
                const std::vector<NamedTensor>& of_inputs);
  void loss(const std::string& name, const Tensor&);

  /// What belongs to a parameter: "model.norm.weight" with slot "param", "grad", or "state".
  struct OfParameter {
    Phase phase;
    std::string slot, state = {};
  };
  /// @param shape  of this rank's piece; the tensor may be a flat shard of it, number `shard`
  void parameter(const OfParameter&, const std::string& name, const PlannedParameter&, const Shape& shape,
                 const Tensor&, std::int64_t shard = 0);

 private:
  Record record(Identity, const std::string& op, const Tensor&) const;
  void lay_out(Record&, const Placement&) const;
  void add(Record, const Tensor&);
  void forward(const Tape&, const Machine::Node&);
  bool is_recorded(const Value&) const;

  AssayDumpWriter& writer_;
  const Mesh mesh_;
  std::int64_t seq_ = 0, step_ = 0, micro_batch_ = -1;
  std::map<const Machine::Node*, std::int64_t> call_of_;
};

}  // namespace assay::align
