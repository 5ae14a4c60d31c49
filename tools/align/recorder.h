#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "assay/align/plan.h"
#include "assay/align/record_sink.h"
#include "assay/align/tape.h"

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
  Recorder(RecordSink& sink, const Mesh& mesh) : sink_(sink), mesh_(mesh) {}

  /// What follows is of this micro-batch, in the forward or the backward of its tape.
  void begin(std::int64_t step, std::int64_t micro_batch, const Tape&);
  void forward(const Tape&);
  void backward(const Tape&, const Machine::Node&, const std::vector<NamedTensor>& of_outputs,
                const std::vector<NamedTensor>& of_inputs);
  void loss(const std::string& name, const Tensor&);

  /// What belongs to a parameter: "model.norm.weight" with slot "param", "grad", or "state".
  struct OfParameter {
    Phase phase;
    std::string slot, state = {};
  };
  /// @param piece  of this rank
  void parameter(const OfParameter&, const std::string& name, const PlannedParameter&, const Tensor& piece);

 private:
  Record record(Identity, const std::string& op, const Tensor&) const;
  void lay_out(Record&, const Placement&) const;
  void add(Record, const Tensor&);
  void forward(const Tape&, const Machine::Node&);

  RecordSink& sink_;
  const Mesh mesh_;
  std::int64_t seq_ = 0, step_ = 0, micro_batch_ = -1;
  std::map<const Machine::Node*, std::int64_t> call_of_;
};

}  // namespace assay::align
