#pragma once

#include <functional>
#include <optional>

#include "assay/align/placement/machine.h"
#include "assay/align/ranks/ranks.h"
#include "assay/align/tape/fault_sites.h"

namespace assay::align {

/// Computes the step with the golden operators, and goes back over the calls for gradients.
class Tape : public Machine {
 public:
  using ParameterSource = std::function<Tensor(const NamedParameter&)>;
  using IndexSource = std::function<Tensor(const std::string& name)>;
  /// @param faults  planted in the calls and movements; it must outlive this
  Tape(const Ranks& ranks, ParameterSource parameters, IndexSource indices,
       const FaultSites* faults = nullptr, const Moment& now = {})
      : Machine(ranks.mesh()),
        ranks_(ranks),
        parameters_(std::move(parameters)),
        indices_(std::move(indices)),
        faults_(faults),
        now_(now) {}

  /// What another rank gave: the activation of the stage before.
  Value input(const Tensor& closed, const MeshPlacement&);
  /// What has been forgotten is computed again.
  const Tensor& tensor(const Value& v) const;

  /// Keeps nothing of what these calls and movements gave; it is computed again when it is needed, and
  /// recorded or counted once. What came from outside is kept.
  void forget(const std::function<bool(const Node&)>& which);
  /// All tensors that are held, for those who keep them elsewhere meanwhile.
  std::vector<Tensor>& held() { return tensors_; }

  /// Sees a call go backward: the gradients of its outputs, "grad_y", and of its inputs, "grad_x", which are
  /// open. And a change of type, with that of its output.
  using Watch = std::function<void(const Node&, const std::vector<NamedTensor>& of_outputs,
                                   const std::vector<NamedTensor>& open_of_inputs)>;
  struct Seed {
    Value value;
    Tensor gradient;  ///< closed
  };
  /// The gradients by every value that the seeds depend on. A value that several calls use gets their
  /// gradients in the reverse order of these calls.
  void backward(const std::vector<Seed>&, const Watch& watch = {});
  /// Of the last backward, open; nothing where no seed depends on the value.
  std::optional<Tensor> open_gradient(const Value&) const;
  std::optional<Tensor> gradient(const Value&) const;
  /// Of what is open, closed; of shares of it their sum. All ranks that have one must call it.
  Tensor complete(const std::string& what, const Tensor& open, const MeshPlacement&) const;
  const MeshPlacement& gradient_placement(const Value& v) const { return gradient_placements_[v.id].value(); }

 protected:
  void hold_parameter(const NamedParameter&) override;
  Shape hold_indices(const std::string& name, const Shape&) override;
  void hold_view(const Value& of, const Shape&) override;
  Shape hold_derived(const std::vector<Value>&, const Shape&, const Formula&, bool real) override;
  void hold_sum(const std::string& module, const Value& counts, const std::vector<int>& group) override;
  std::vector<NamedValue> hold_call(const Node&) override;
  Shape hold_moved(const Node&) override;
  std::optional<std::int64_t> known(const Value& v) const override { return tensor(v).indices().front(); }
  void placed(const Value&) override;

 private:
  const Shape& hold(Tensor);
  using Pass = Moment::Pass;
  Moment at(Pass) const;
  std::vector<NamedTensor> compute(const Node&, std::vector<NamedTensor> inputs, Pass) const;
  Tensor move(const Node&, const Movement&, const Tensor&, Pass) const;
  Tensor exchange(const Node&, const Tensor& rows, const Value& give, Pass) const;
  Tensor moved(const Node&, Pass) const;
  Tensor settled(const Value&, Tensor) const;
  void compute_again(const Node&) const;
  void check_shape(const std::string& name, const Tensor&, const Shape&) const;
  std::vector<NamedTensor> inputs_of(const Node&) const;
  bool is_open(const Value&) const;
  Tensor closed_share(const Node&, const Value&) const;
  std::vector<NamedTensor> gradients_of_outputs(const Node&, bool with_optional) const;
  void go_back(const Node&, const Watch&);
  void show(const Node& whole, const Watch&);
  void move_back(const Node&, const Watch&);

  const Ranks ranks_;
  ParameterSource parameters_;
  IndexSource indices_;
  const FaultSites* faults_;
  const Moment now_;
  mutable std::vector<Tensor> tensors_;                   ///< closed, but for what is partial
  mutable std::map<std::size_t, const Node*> forgotten_;  ///< who gave the value, by its id
  std::vector<std::vector<Tensor>> contributions_;        ///< to each gradient, open
  std::vector<std::optional<MeshPlacement>> gradient_placements_;
};

}  // namespace assay::align
