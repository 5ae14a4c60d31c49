// A replay whose rows are sequence after sequence records what Hugging Face's modules are given and make
// beside its operators.
#include <algorithm>
#include <numeric>

#include "assay/align/step/recorder.h"
#include "assay/align/step/rotary_tables.h"

namespace assay::align {
namespace {

enum class Module : std::uint8_t { own, parent, gate, experts };

// What a module is given and makes that has another name than the replay's operator, as Hugging Face's layers
// call it.
struct OfModule {
  std::string_view ending, op, slot, arg;  // of the operator's call
  Module module;
  std::string_view name, recorded_op = {};
};
constexpr std::string_view experts_op = "moe_experts";
constexpr OfModule of_modules[] = {
    {".o_proj", "linear", "output", "y", Module::parent, "0"},
    {".o_proj", "linear", "grad_output", "y", Module::parent, "0"},
    {".down_proj", "linear", "output", "y", Module::parent, "y"},
    {".down_proj", "linear", "grad_output", "y", Module::parent, "y"},
    {".mlp", "add", "output", "y", Module::own, "y"},
    {".mlp", "add", "grad_output", "y", Module::own, "y"},
    {".gate", "linear", "output", "y", Module::own, "0"},
    {".gate", "linear", "grad_output", "y", Module::own, "0"},
    {".mlp", "router_topk", "output", "weights", Module::gate, "1"},
    {".mlp", "router_topk", "grad_output", "weights", Module::gate, "1"},
    {".mlp", "router_topk", "output", "index", Module::gate, "2"},
    {".mlp", "moe_permute", "input", "x", Module::experts, "hidden_states", experts_op},
    {".mlp", "moe_permute", "input", "index", Module::experts, "top_k_index", experts_op},
    {".mlp", "moe_permute", "grad_input", "x", Module::experts, "hidden_states", experts_op},
    {".mlp", "moe_unpermute", "input", "probs", Module::experts, "top_k_weights", experts_op},
    {".mlp", "moe_unpermute", "output", "y", Module::experts, "y", experts_op},
    {".mlp", "moe_unpermute", "grad_output", "y", Module::experts, "y", experts_op},
    {".mlp", "moe_unpermute", "grad_input", "probs", Module::experts, "top_k_weights", experts_op}};
// A layer of experts without shared ones has no sum.
constexpr OfModule of_experts_alone[] = {{".mlp", "moe_unpermute", "output", "y", Module::own, "y"},
                                         {".mlp", "moe_unpermute", "grad_output", "y", Module::own, "y"}};

// Modules that are made of others: what they compute themselves are functions of theirs.
constexpr std::string_view containers[] = {".self_attn", ".mlp", ".shared_experts", ".experts.*"};

std::string parent_of(const std::string& module) {
  return module.substr(0, module.rfind('.'));
}

std::string name_of(Module which, const std::string& module) {
  switch (which) {
    case Module::own:
      return module;
    case Module::parent:
      return parent_of(module);
    case Module::gate:
      return module + ".gate";
    case Module::experts:
      return module + ".experts";
  }
  return module;
}

}  // namespace

// "model.layers.3": of the sums in a layer the last is what it makes.
bool Recorder::is_layer(std::string_view module) const {
  const std::size_t dot = module.rfind('.');
  return batch_.batch_first && module.starts_with("model.layers.") &&
         dot == std::string_view("model.layers").size();
}

std::string Recorder::module_of(const Machine::Node& node) const {
  const bool is_function =
      batch_.batch_first &&
      (node.op->name == "cross_entropy" ||
       std::ranges::any_of(containers, [&](std::string_view c) { return node.module.ends_with(c); }));
  return is_function ? node.module + "." + std::string(node.op->name) + "()" : node.module;
}

// Another implementation has neither a replay's functions, nor its rows of all experts, nor what an operator
// keeps for its backward.
bool Recorder::is_within(const OfCall& what) const {
  if (!batch_.batch_first) return false;
  const bool is_result =
      what.slot == std::string_view("output") || what.slot == std::string_view("grad_output");
  return module_of(*what.node) != what.node->module || is_at_experts(what.node->module) ||
         (is_result && what.arg != what.node->outputs.front().name);
}

void Recorder::add_of_module(const OfCall& what, const Tensor& tensor) {
  if (!batch_.batch_first || mesh_.parallel().ranks() > 1) return;
  const auto add_alias = [&](const OfModule& m) {
    if (!what.node->module.ends_with(m.ending) || m.op != what.node->op->name || m.slot != what.slot ||
        m.arg != what.arg || is_at_experts(what.node->module))
      return;
    const Tensor values =
        m.module == Module::own || m.module == Module::parent ? of_sequences(tensor) : tensor;
    Record r = record({step_, micro_batch_, what.phase, name_of(m.module, what.node->module), what.slot,
                       std::string(m.name), 0},
                      std::string(m.recorded_op), values);
    lay_out(r, MeshPlacement());
    add(std::move(r), values);
  };
  for (const OfModule& m : of_modules) add_alias(m);
  if (!has_sum_.contains(what.node->module)) {
    for (const OfModule& m : of_experts_alone) add_alias(m);
  }
}

// Of tokens.
Tensor Recorder::of_sequences(const Tensor& tensor) const {
  Shape shape = tensor.shape();
  shape.front() = batch_.length;
  shape.insert(shape.begin(), batch_.sequences);
  return tensor.reshaped(shape);
}

// Layers of experts and losses take the tokens of all sequences as rows.
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
