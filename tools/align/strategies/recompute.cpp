// Recompute (docs/semantics.md D11). What the chosen calls and movements give is not kept between forward and
// backward, but computed again from what is, by the same arithmetic: the same bits, and collectives take
// place twice.
//   full        everything in a layer but its output
//   mla         attention but its output projection
//   permute     rows of experts on their way
//   activation  of feed-forward blocks
#include "assay/align/strategies/recompute.h"

#include <map>
#include <set>
#include <string>

namespace assay::align {
namespace {

// "model.layers.3" of "model.layers.3.mlp.gate"; "" outside of layers.
std::string layer_of(const std::string& module) {
  static const std::string layers = "model.layers.";
  if (!module.starts_with(layers)) return "";
  return module.substr(0, module.find_first_of("./", layers.size()));
}

std::set<const Machine::Node*> outputs_of_layers(const Machine& machine) {
  std::map<std::string, const Machine::Node*> last;
  for (const Machine::Node& node : machine.nodes()) last[layer_of(node.module)] = &node;
  std::set<const Machine::Node*> all;
  for (const auto& [layer, node] : last) all.insert(node);
  return all;
}

bool is_of_attention(const Machine::Node& node) {
  return node.module.find(".self_attn") != std::string::npos &&
         node.module.find(".o_proj") == std::string::npos;
}

bool moves_rows(const Machine::Node& node) {
  return node.kind == Machine::Node::Kind::exchange || node.is_of("moe_permute") ||
         node.is_of("index_select");
}

}  // namespace

std::function<bool(const Machine::Node&)> computed_again(const Machine& machine, Recompute what) {
  return [kept = outputs_of_layers(machine), what](const Machine::Node& node) {
    if (layer_of(node.module).empty()) return false;
    switch (what) {
      case Recompute::none:
        return false;
      case Recompute::full:
        return !kept.contains(&node);
      case Recompute::mla:
        return is_of_attention(node);
      case Recompute::permute:
        return moves_rows(node);
      case Recompute::activation:
        return node.is_of("swiglu");
    }
    return false;
  };
}

void forget_for_recompute(Tape& tape, Recompute what) {
  tape.forget(computed_again(tape, what));
}

}  // namespace assay::align
