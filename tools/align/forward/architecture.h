#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/align/forward/forward.h"
#include "assay/align/placement/shape_machine.h"

/// What a model of any size is made of, without computing it.
namespace assay::align {

/// An input of a call as it was taken down; `parameter` is empty where it is no parameter.
struct CallInput {
  std::string arg;
  Shape shape;
  std::string parameter;
};
struct ModuleCall {
  std::string module;
  const Operator* op = nullptr;
  std::vector<CallInput> inputs;
  Attributes attributes;
};

/// The forward pass of a micro-batch on a single device, in order.
std::vector<ModuleCall> forward_calls(const Model&, const Batch&);

struct Parameter {
  std::string name;  ///< as in Machine::parameter
  Shape shape;
  std::int64_t size = 0;
  std::int64_t met_by_token = 0;  ///< elements that one token is multiplied with
};

/// In the order of their first use; the tied head is the embedding.
std::vector<Parameter> parameters(const Model&);

/// Accumulation counts of a call's outputs and of the gradients of its inputs, by name; where they depend on
/// the routing, those of tokens that are spread evenly. Copies have none.
struct Accumulation {
  std::string output;
  std::int64_t count;
};
std::vector<Accumulation> accumulations(const ModuleCall&);

}  // namespace assay::align
