#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "assay/align/step/expert_rows.h"
#include "assay/align/step/plan.h"
#include "assay/align/step/record_sink.h"
#include "assay/align/tape/tape.h"

namespace assay::align {

/// The manifest of a replay's dump: its mesh is pp, dp, cp, tp.
Manifest manifest_of(const Parallel&, const std::string& producer);

/// The dimensions of a dump's mesh along which ranks have shares of a gradient; nothing if they lie
/// otherwise.
std::optional<std::vector<Axis>> shares_along(const PlannedParameter&, const Parallel&);

/// Writes what a rank of a replay computes to an assay-dump: the inputs and outputs of every module, their
/// gradients, parameters, their gradients, optimizer states and losses, each with its layout. Calls that only
/// move elements (reshape, transpose, slice, ..) are left out. A sum of which ranks have shares is written
/// complete.
/// On several ranks the rows of experts are of several micro-batches, and each is written to its own, at its
/// place on a single device. Tokens on their way to the experts and back are written as they are outside;
/// what moe_permute says of the rows, its indices, as it would of the whole micro-batch.
class Recorder {
 public:
  /// @param batch  if its rows are sequence after sequence, what Hugging Face's modules have as
  ///               [sequences, length, ..] is written so
  Recorder(RecordSink& sink, const Mesh& mesh, const Batch& batch)
      : sink_(sink), mesh_(mesh), batch_(batch) {}

  /// What follows is of this micro-batch, in the forward or the backward of its tape.
  /// @param rows  of the tape; it must stay until the next
  void begin(std::int64_t step, std::int64_t micro_batch, const Tape&,
             const std::map<std::string, ExpertRows>& rows);
  void forward(const Tape&);
  /// A Tape's Watch. Collective.
  void backward(const Tape&, const Machine::Node&, const std::vector<NamedTensor>& of_outputs,
                const std::vector<NamedTensor>& open_of_inputs);
  void loss(const std::string& name, const Tensor&);

  /// What belongs to a parameter: "model.norm.weight" with slot "param", "grad", or "state".
  struct OfParameter {
    Phase phase;
    std::string slot, state = {};
  };
  /// @param piece  of this rank
  void parameter(const OfParameter&, const std::string& name, const PlannedParameter&, const Tensor& piece);
  /// A gradient before it is reduced: arg "weight.unreduced".
  void unreduced(const std::string& name, const PlannedParameter&, const Tensor& share,
                 const std::vector<Axis>& partial_along);
  /// Of the step: "loss", "grad_norm". The first rank writes it.
  void scalar(Phase, const char* name, double);

 private:
  struct OfCall {
    const Machine::Node* node;
    Phase phase;
    const char* slot;
    std::string arg;
    std::optional<std::int64_t> count;
  };
  Record record(Identity, const std::string& op, const Tensor&) const;
  Record record(const OfCall&, const Tensor&) const;
  Record record(const OfParameter&, const std::string& name, const PlannedParameter&, const Tensor&) const;
  void lay_out(Record&, const MeshPlacement&) const;
  void lay_out(Record&, const PlannedParameter&) const;
  void add(Record, const Tensor&);
  void add(const OfCall&, const Tensor&, const MeshPlacement&);
  bool is_layer(std::string_view module) const;
  bool is_of_sequences(const OfCall&, const Tensor&) const;
  Tensor of_sequences(const Tensor&) const;
  std::string module_of(const Machine::Node&) const;
  bool is_within(const OfCall&) const;
  void add_of_module(const OfCall&, const Tensor&);
  void add_rotary_tables(const Tape&, const Machine::Node& rope);
  void add_rows(const OfCall&, const Tensor&, const MeshPlacement&);
  void add_tokens(const OfCall&, const Tensor&, const DenseTokens&, const Value& of);
  const ExpertRows* rows_of(const Machine::Node&) const;
  void forward(const Tape&, const Machine::Node&);
  void forward(const Tape&, const OfCall&, const Value&);
  void backward_of_tokens(const Machine::Node& border, const Tensor& gradient);

  RecordSink& sink_;
  const Mesh mesh_;
  const Batch batch_;
  std::set<std::string> has_sum_;  ///< modules that add what they have made
  bool has_rotary_tables_ = false;
  std::int64_t seq_ = 0, step_ = 0, micro_batch_ = -1;
  std::map<const Machine::Node*, std::int64_t> call_of_;
  const std::map<std::string, ExpertRows>* rows_ = nullptr;
  struct Waiting {
    OfCall what;
    DenseTokens tokens;
    Value of;
  };
  std::vector<Waiting> waiting_;  ///< gradients of tokens that experts got, until their shares are summed
};

}  // namespace assay::align
