#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/align/model.h"
#include "assay/operators/golden.h"

/// What a model is made of: the operators that it calls, with the shapes of the full model, and its
/// parameters.
namespace assay {

/// An input of a call. A parameter has the name that Hugging Face's modeling code gives it; of experts, whose
/// matrices are one tensor [experts, out, in] here, "*" stands for the number of each.
struct CallInput {
  std::string arg;
  Shape shape;
  std::string parameter = {};
};

/// One operator of the forward pass. `module` is the one that it belongs to: "model.layers.0.self_attn".
struct Call {
  std::string module;
  const Operator* op = nullptr;
  std::vector<CallInput> inputs;
  Attributes attributes = {};
};

/// The tokens of a micro-batch.
struct Batch {
  std::int64_t sequences = 1, length = 1;
  std::int64_t tokens() const { return sequences * length; }
};

/// The forward pass of a micro-batch, in order.
std::vector<Call> forward_calls(const Model&, const Batch&);

struct Parameter {
  std::string name;  ///< as in CallInput
  Shape shape;
  std::int64_t size = 0;
  std::int64_t met_by_token = 0;  ///< elements that one token is multiplied with
};

/// In the order of their first use; the tied head is the embedding.
std::vector<Parameter> parameters(const Model&);

/// Accumulation counts of a call's outputs and of the gradients of its inputs, by name, longest sums that
/// depend on the routing as for tokens that are spread evenly. Copies have none.
struct Accumulation {
  std::string output;
  std::int64_t count;
};
std::vector<Accumulation> accumulations(const Call&);

}  // namespace assay
