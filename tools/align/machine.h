#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/operators/golden.h"

namespace assay::align {

/// A tensor of the step, known to the machine that gave it.
struct Value {
  std::size_t id = 0;
  Shape shape = {};
};

struct NamedValue {
  std::string name;
  Value value;
};

/// What a model is run on: its forward pass is written once, over calls of golden operators; one machine only
/// takes down the shapes, another computes and can go backward.
class Machine {
 public:
  virtual ~Machine() = default;

  /// A tensor from outside; the same name is the same tensor. Names are those of Hugging Face's modeling
  /// code of DeepSeek-V3 and Qwen3-MoE; of experts, whose matrices are one tensor [experts, out, in], "*"
  /// stands for the number of each.
  virtual Value parameter(const std::string& name, const Shape&) = 0;
  /// Integers that the step is given: "tokens", "targets".
  virtual Value indices(const std::string& name, const Shape&) = 0;
  /// Indices under another shape, in C order.
  virtual Value view(const Value&, const Shape&) = 0;
  /// All outputs of the operator that are not gradients.
  /// @param module  what it belongs to: "model.layers.0.self_attn.q_b_proj"
  virtual std::vector<NamedValue> call_all(const std::string& module, std::string_view op,
                                           const std::vector<NamedValue>& inputs, const Attributes&) = 0;

  /// The first output.
  Value call(const std::string& module, std::string_view op, const std::vector<NamedValue>& inputs,
             const Attributes& attributes = {}) {
    return call_all(module, op, inputs, attributes).front().value;
  }
};

/// One of the outputs of a call. Throws Error if it is not among them.
const Value& value_named(const std::vector<NamedValue>&, std::string_view name);

}  // namespace assay::align
