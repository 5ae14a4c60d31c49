#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "assay/align/tape.h"
#include "assay/dumps/assay_dump_writer.h"

namespace assay::align {

/// Writes what a replay computes as an assay-dump: the inputs and outputs of every module, their gradients,
/// parameters, their gradients, optimizer states and losses. Calls that only move elements (reshape,
/// transpose, slice, ..) are left out.
class Recorder {
 public:
  explicit Recorder(const std::filesystem::path& folder, const std::string& producer);

  void begin(std::int64_t step, std::int64_t micro_batch);
  void forward(const Tape&, const Tape::Node&);
  void backward(const Tape&, const Tape::Node&, const std::vector<NamedTensor>& of_outputs,
                const std::vector<NamedTensor>& of_inputs);
  /// A parameter or what belongs to it: "model.norm.weight" with slot "param", "grad", or "state".
  void parameter(Phase, const std::string& name, const std::string& slot, const std::string& state,
                 const Tensor&);
  void loss(const std::string& name, const Tensor&);
  void finish() { writer_.finish(); }

 private:
  void add(Identity, const std::string& op, const Tensor&, std::optional<std::int64_t> count = {});

  AssayDumpWriter writer_;
  std::int64_t seq_ = 0, step_ = 0, micro_batch_ = -1;
  std::map<std::string, std::int64_t> forward_calls_;  ///< of a module, in the micro-batch
  std::map<const Tape::Node*, std::int64_t> call_of_;
};

}  // namespace assay::align
