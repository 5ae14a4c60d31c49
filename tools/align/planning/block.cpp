#include "assay/align/planning/block.h"

#include <algorithm>
#include <set>
#include <vector>

#include "assay/align/arithmetic/mixed_precision.h"
#include "assay/align/placement/planned_parameter.h"
#include "assay/align/step/shape_pass.h"
#include "assay/align/strategies/recompute.h"

namespace assay::align {
namespace {

using Node = Machine::Node;
using NodeKind = Node::Kind;
using MoveKind = Movement::Kind;

double elements(const Value& v) {
  return static_cast<double>(element_count(v.shape));
}

class Measurement {
 public:
  Measurement(const Model& m, const Batch& batch, const Parallel& p, const Stage& stage, const Devices& d,
              const Storage& storage)
      : pass_(m, batch, Mesh(p, 0), stage), devices_(d), storage_(storage) {
    for (const Node& node : pass_.machine.nodes()) {
      for (const NamedValue& y : node.outputs) producer_.try_emplace(y.value.id, &node);
    }
    for (const Machine::NamedParameter& parameter : pass_.machine.parameters())
      parameters_.insert(parameter.value.id);
  }

  Block run() {
    Block b;
    add_parameters(b);
    for (const Node& node : pass_.machine.nodes()) add_work(node, b);
    for (std::size_t mode = 0; mode < Block::modes; ++mode) add_kept(static_cast<Recompute>(mode), b);
    if (!pass_.machine.nodes().empty()) b.output = bytes(pass_.machine.nodes().back().outputs.front().value);
    return b;
  }

 private:
  void add_parameters(Block& b) const {
    for (const Machine::NamedParameter& parameter : pass_.machine.parameters()) {
      const double size = elements(parameter.value);
      const bool embeds = parameter.name == "model.embed_tokens.weight";
      (is_of_experts(parameter.name) ? b.experts : embeds ? b.embedding : b.dense) += size;
    }
  }

  // As bf16 stores it.
  double bytes(const Value& v) const {
    const double half = 2, whole = 4;
    const auto made = producer_.find(v.id);
    if (made == producer_.end()) return elements(v) * (storage_.float32_residual ? whole : half);  // given
    const Node& node = *made->second;
    if (node.op == nullptr) return elements(v) * bytes(node.inputs.front().value) / elements_of_input(node);
    if (v.id != node.outputs.front().value.id) return elements(v) * whole;
    const Result result = precision_row(Precision::bf16, node.op->name, node.module).result;
    if (result == Result::as_first_operand)
      return elements(v) * bytes(node.inputs.front().value) / elements_of_input(node);
    const bool is_residual = node.is_of("add") || node.is_of("embedding");
    const bool narrow = result == Result::half || (is_residual && !storage_.float32_residual);
    return elements(v) * (narrow ? half : whole);
  }
  static double elements_of_input(const Node& node) {
    return std::max(1.0, elements(node.inputs.front().value));
  }

  // What holds the same elements, or those that they are gathered from again.
  Value root(const Value& v) const {
    const auto made = producer_.find(v.id);
    if (made == producer_.end()) return v;
    const Node& node = *made->second;
    const bool is_view = node.is_of("reshape") || node.is_of("transpose") || node.kind == NodeKind::retype;
    const bool is_gathered =
        node.movement && (node.movement->kind == MoveKind::copy ||
                          (node.movement->kind == MoveKind::all_gather && node.movement->axis == Axis::tp));
    return is_view || is_gathered ? root(node.inputs.front().value) : v;
  }

  // The tensors that the gradient of a call reads.
  std::vector<Value> read_by_gradient(const Node& node) const {
    if (node.op == nullptr || node.is_inside() || node.op->regularizes) return {};
    if (node.op->takes_shares == Shares::of_all && node.op->linear_in.empty()) return {};
    if (node.is_of("embedding") || node.is_of("rope") || node.is_of("moe_permute")) return {};  // linear
    std::vector<Value> read;
    for (const NamedValue& x : node.inputs) {
      if (input_arg(*node.op, x.name).role == Role::input && !parameters_.contains(x.value.id))
        read.push_back(x.value);
    }
    if (node.is_of("attention")) {
      for (const NamedValue& y : node.outputs) read.push_back(y.value);
    }
    return read;
  }

  void add_kept(Recompute mode, Block& b) const {
    const auto again = computed_again(pass_.machine, mode);
    const auto is_made_again = [&](const Value& v) {
      const auto made = producer_.find(v.id);
      return made != producer_.end() && again(*made->second);
    };
    std::map<std::size_t, double> kept;
    const auto keep = [&](const Value& v, double least) {
      const Value held = root(v);
      const double size = std::max(bytes(held), least * elements(held));
      if (!parameters_.contains(held.id) && !is_made_again(held)) kept.try_emplace(held.id, size);
    };
    for (const Node& node : pass_.machine.nodes()) {
      // The loss is computed of float32 logits (arXiv 2205.05198, section 4.3).
      const double least = node.op != nullptr && node.op->concludes ? 4 : 0;
      for (const Value& v : read_by_gradient(node)) keep(v, least);
      if (!again(node)) continue;
      for (const NamedValue& x : node.inputs) {
        const bool is_real = node.op == nullptr || input_arg(*node.op, x.name).role == Role::input;
        if (is_real && !is_index(x.value)) keep(x.value, 0);
      }
      b.flops_again[index(mode)] += flops(node);
      b.sending_again[index(mode)] += seconds_of(node, false);
    }
    for (const auto& [id, size] : kept) b.kept[index(mode)] += size;
  }
  static std::size_t index(Recompute mode) { return static_cast<std::size_t>(mode); }

  bool is_index(const Value& v) const {
    const auto made = producer_.find(v.id);
    if (made == producer_.end()) return false;
    const Node& node = *made->second;
    if (node.op == nullptr) return is_index(node.inputs.front().value);
    for (const NamedValue& y : node.outputs) {
      if (y.value.id == v.id) return output_arg(*node.op, y.name).role == Role::output_index;
    }
    return false;
  }

  void add_work(const Node& node, Block& b) const {
    b.flops += flops(node);
    const double forward = seconds_of(node, false), backward = seconds_of(node, true);
    b.sending_forward += forward;
    b.sending_backward += backward;
    if (forward + backward > 0)
      b.sending[node.movement ? node.movement->axis : Axis::ep] += forward + backward;
  }

  // A multiplication and an addition are two.
  double flops(const Node& node) const {
    if (node.is_inside() || node.op == nullptr) return 0;
    const auto shape = [&](std::string_view name) { return value_named(node.inputs, name).shape; };
    if (node.is_of("linear"))
      return 2 * elements(value_named(node.inputs, "x")) * static_cast<double>(shape("w").front());
    if (node.is_of("grouped_matmul"))
      return 2 * elements(value_named(node.inputs, "x")) * static_cast<double>(shape("w")[1]);
    if (!node.is_of("attention")) return 0;
    // Scores and their sum of values; a query meets half of all keys, on every rank as many.
    const Shape q = shape("q"), k = shape("k"), v = shape("v");
    const double turns =
        node.kind == NodeKind::whole ? static_cast<double>(pass_.machine.mesh().size(Axis::cp)) : 1;
    return static_cast<double>(q[0] * q[1] * q[2]) * static_cast<double>(k[2]) * turns *
           static_cast<double>(q[3] + v[3]);
  }

  // A rank of n sends and receives, in rings (Thakur 2005).
  double seconds_of(const Node& node, bool backward) const {
    if (node.kind != NodeKind::movement && node.kind != NodeKind::exchange) return 0;
    const Mesh& mesh = pass_.machine.mesh();
    const std::vector<int> ranks = node.movement ? ranks_of(*node.movement, mesh) : mesh.node_group();
    const Value& x = node.inputs.front().value;
    if (ranks.size() < 2 || is_index(x)) return 0;
    const auto n = static_cast<double>(ranks.size());
    const double others = (n - 1) / n;
    const auto volume = [&]() -> double {
      if (node.kind == NodeKind::exchange) return others;
      switch (node.movement->kind) {
        case MoveKind::copy:
          return backward ? 2 * others : 0;
        case MoveKind::all_reduce:
          return backward ? 0 : 2 * others;
        case MoveKind::all_gather:
          return n - 1;
        case MoveKind::reduce_scatter:
        case MoveKind::all_to_all:
          return others;
        case MoveKind::split:
          return backward ? others : 0;
        case MoveKind::shift:
        case MoveKind::return_shift:
          return 1;
      }
      return 0;
    };
    const auto [first, last] = std::ranges::minmax(ranks);
    const bool in_node = first / devices_.of_node == last / devices_.of_node;
    return volume() * bytes(x) / (in_node ? devices_.in_node : devices_.between_nodes);
  }

  const ShapePass pass_;
  const Devices& devices_;
  const Storage& storage_;
  std::map<std::size_t, const Node*> producer_;
  std::set<std::size_t> parameters_;
};

}  // namespace

double Block::seconds(Recompute what, const Devices& devices) const {
  const auto mode = static_cast<std::size_t>(what);
  return (3 * flops + flops_again[mode]) / devices.flops + sending_forward + sending_backward +
         sending_again[mode];
}

Block measure(const Model& model, const Batch& batch, const Parallel& parallel, const Stage& stage,
              const Devices& devices, const Storage& storage) {
  return Measurement(model, batch, parallel, stage, devices, storage).run();
}

}  // namespace assay::align
