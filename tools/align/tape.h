#pragma once

#include <functional>
#include <map>
#include <optional>

#include "assay/align/machine.h"

namespace assay::align {

/// Computes the step with the golden operators, and goes back over the calls for gradients.
class Tape : public Machine {
 public:
  /// Of a parameter or of indices, by name.
  using Source = std::function<Tensor(const std::string& name, const Shape&)>;
  /// @param level  report (float32) or fp64
  Tape(Level level, Source parameters, Source indices)
      : level_(level), parameters_(std::move(parameters)), indices_(std::move(indices)) {}

  Value parameter(const std::string& name, const Shape&) override;
  Value indices(const std::string& name, const Shape&) override;
  Value view(const Value&, const Shape&) override;
  std::vector<NamedValue> call_all(const std::string& module, std::string_view op,
                                   const std::vector<NamedValue>& inputs, const Attributes&) override;

  const Tensor& tensor(const Value& v) const { return tensors_[v.id]; }

  struct Node {
    std::string module;
    const Operator* op;
    Attributes attributes;
    std::vector<NamedValue> inputs, outputs;
  };
  /// In the order of the calls.
  const std::vector<Node>& nodes() const { return nodes_; }

  /// Sees a call go backward: the gradients of its outputs, "grad_y", and of its inputs, "grad_x".
  using Watch = std::function<void(const Node&, const std::vector<NamedTensor>& of_outputs,
                                   const std::vector<NamedTensor>& of_inputs)>;
  /// The gradients of `factor` times a scalar by every value that it depends on. A value that several calls
  /// use gets their gradients in the reverse order of these calls, added one by one.
  void backward(const Value& scalar, double factor = 1, const Watch& watch = {});
  /// Of the last backward; nullptr where the scalar does not depend on the value.
  const Tensor* gradient(const Value& v) const;

  struct NamedParameter {
    std::string name;
    Value value;
  };
  /// In the order of their first use.
  const std::vector<NamedParameter>& parameters() const { return used_; }

 private:
  Value add(Tensor);
  void accumulate(const Value&, const Tensor& gradient);
  void go_back(const Node&, const Watch&);

  Level level_;
  Source parameters_, indices_;
  std::vector<Tensor> tensors_;
  std::vector<std::optional<Tensor>> gradients_;
  std::vector<Node> nodes_;
  std::vector<NamedParameter> used_;
};

}  // namespace assay::align
