// A replay whose rows are sequence after sequence records what Hugging Face's modules are given and make
// beside its operators.
#include <algorithm>
#include <numeric>

#include "assay/align/step/recorder.h"
#include "assay/align/step/rotary_tables.h"

namespace assay::align {
namespace {

// What a module of all experts is given and makes, as its layers call it.
struct OfExperts {
  std::string_view op, slot, arg, name;
};
constexpr OfExperts of_experts[] = {{"moe_permute", "input", "x", "hidden_states"},
                                    {"moe_permute", "input", "index", "top_k_index"},
                                    {"moe_permute", "grad_input", "x", "hidden_states"},
                                    {"moe_unpermute", "input", "probs", "top_k_weights"},
                                    {"moe_unpermute", "output", "y", "y"},
                                    {"moe_unpermute", "grad_output", "y", "y"},
                                    {"moe_unpermute", "grad_input", "probs", "top_k_weights"}};

}  // namespace

// "model.layers.3": of the sums in a layer the last is what it makes.
bool Recorder::is_layer(std::string_view module) const {
  const std::size_t dot = module.rfind('.');
  return batch_.batch_first && module.starts_with("model.layers.") &&
         dot == std::string_view("model.layers").size();
}

void Recorder::add_of_experts(const OfCall& what, const Tensor& tensor) {
  const auto own = std::ranges::find_if(of_experts, [&](const OfExperts& e) {
    return e.op == what.node->op->name && e.slot == what.slot && e.arg == what.arg;
  });
  if (!batch_.batch_first || mesh_.parallel().ranks() > 1 || own == std::end(of_experts)) return;
  Record r = record(
      {step_, micro_batch_, what.phase, what.node->module + ".experts", what.slot, std::string(own->name), 0},
      "moe_experts", tensor);
  lay_out(r, MeshPlacement());
  add(std::move(r), tensor);
}

// Layers of experts and losses take the tokens of all sequences as rows there, too.
bool Recorder::is_of_sequences(const OfCall& what, const Tensor& tensor) const {
  return batch_.batch_first && what.node->op->name != "cross_entropy" &&
         what.node->module.find(".mlp") == std::string::npos && !tensor.shape().empty() &&
         tensor.shape().front() == batch_.tokens();
}

// A module of the model makes them once, before the first layer.
void Recorder::add_rotary_tables(const Tape& tape, const Machine::Node& rope) {
  has_rotary_tables_ = true;
  const Tensor& x = tape.tensor(value_named(rope.inputs, "x"));
  const std::int64_t length = x.shape()[2];
  const auto [cosines, sines] = rotary_tables(rope.attributes, length, x.shape()[3], x.dtype());
  std::vector<std::int64_t> positions(static_cast<std::size_t>(length));
  std::iota(positions.begin(), positions.end(), 0);
  const auto add_whole = [&](const char* slot, const char* arg, const Tensor& tensor) {
    Record r = record({step_, micro_batch_, Phase::forward, "model.rotary_emb", slot, arg, 0},
                      "rotary_embedding", tensor);
    lay_out(r, MeshPlacement());
    add(std::move(r), tensor);
  };
  add_whole("input", "position_ids", Tensor::from_indices({1, length}, positions));
  add_whole("output", "cos", cosines);
  add_whole("output", "sin", sines);
}

}  // namespace assay::align
