#include "assay/align/placement/placement_rules.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "assay/align/placement/labels.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

std::size_t find_label(const std::vector<std::string>& labels, const std::string& label) {
  return static_cast<std::size_t>(std::ranges::find(labels, label) - labels.begin());
}

// Which labels are sharded along an axis.
using Sharded = std::set<std::string>;
void collect(Sharded& all, const Labels& labels, const std::string& tensor, const Placed& placed) {
  if (placed.how == Placed::How::sharded) all.insert(labels.of(tensor)[placed.dim]);
}

Placed place(const Sharded& all, const std::vector<std::string>& labels) {
  for (const std::string& label : all) {
    const std::size_t at = find_label(labels, label);
    if (at < labels.size()) return sharded(at);
  }
  return replicated;
}

class Outputs {
 public:
  Outputs(const std::string& module, const Operator& op, const std::vector<NamedValue>& inputs, Axis axis)
      : module_(module), op_(op), inputs_(inputs), axis_(axis) {}

  bool partial_inputs() const {
    std::size_t partials = 0, all = 0;
    for (const NamedValue& x : inputs_) {
      if (input_arg(op_, x.name).role != Role::input) continue;
      ++all;
      partials += x.value.placement[axis_] == partial ? 1 : 0;
    }
    if (partials == 0) return false;
    if (op_.takes_shares == Shares::of_all && partials == all) return true;
    if (op_.takes_shares == Shares::of_one && partials == 1) return true;
    const auto first = std::ranges::find_if(
        inputs_, [&](const NamedValue& x) { return x.value.placement[axis_] == partial; });
    throw Error(
        "{}: {} takes {}, which is partial over {}: each rank has a share of the sum; reduce it first",
        module_, op_.name, first->name, name(axis_));
  }

  Sharded sharded_labels(const Labels& labels) const {
    Sharded all;
    for (const NamedValue& x : inputs_) collect(all, labels, x.name, x.value.placement[axis_]);
    if (op_.rows == Rows::routed) return all;  // index data say which rows meet: inputs need not be cut alike
    for (const NamedValue& x : inputs_) {
      for (const std::string& label : all) {
        const std::size_t dim = find_label(labels.of(x.name), label);
        if (dim < labels.of(x.name).size() && x.value.placement[axis_] != sharded(dim))
          throw Error("{}: {} takes {}, {} over {}, beside inputs whose same dimension is sharded", module_,
                      op_.name, x.name, to_string(x.value.placement[axis_]), name(axis_));
      }
    }
    return all;
  }

  Placed output(const Sharded& all, const Labels& labels, const std::string& y) const {
    const Placed placed = place(all, labels.of(y));
    if (all.empty() || placed != replicated) return placed;
    // Each rank has its own: how many of its tokens an expert gets.
    if (output_arg(op_, y).role == Role::output_index)
      return labels.of(y).empty() ? replicated : sharded(0);  // a scalar: as large on every rank
    if (op_.makes_shares) return partial;
    throw Error("{}: {} needs a dimension whole that is sharded over {}; gather it first", module_, op_.name,
                name(axis_));
  }

 private:
  const std::string& module_;
  const Operator& op_;
  const std::vector<NamedValue>& inputs_;
  const Axis axis_;
};

std::optional<Placed> find(const std::vector<Sharding>& declared, Axis axis) {
  const auto at = std::ranges::find(declared, axis, &Sharding::axis);
  return at == declared.end() ? std::nullopt : std::optional(at->placed);
}

bool all_replicated(const std::vector<NamedValue>& values) {
  return std::ranges::all_of(values, [](const NamedValue& v) { return v.value.placement.is_replicated(); });
}
bool all_replicated(const std::vector<NamedValue>& values, Axis axis) {
  return std::ranges::all_of(values,
                             [&](const NamedValue& v) { return v.value.placement[axis] == replicated; });
}

}  // namespace

void place_outputs(const std::string& module, const Operator& op, const std::vector<NamedValue>& inputs,
                   const Attributes& attributes, const std::vector<Sharding>& declared,
                   std::vector<NamedValue>& outputs) {
  for (NamedValue& y : outputs) {
    for (const Sharding& known : declared) y.value.placement[known.axis] = known.placed;
  }
  if (all_replicated(inputs)) return;
  const Labels labels(op, inputs, attributes, outputs);
  for (const Axis axis : placed_axes) {
    if (find(declared, axis) || all_replicated(inputs, axis)) continue;
    const Outputs rule(module, op, inputs, axis);
    const bool is_partial = rule.partial_inputs();
    const Sharded all = rule.sharded_labels(labels);
    for (NamedValue& y : outputs)
      y.value.placement[axis] = is_partial ? partial : rule.output(all, labels, y.name);
  }
}

std::vector<PlacedGradient> place_gradients(const Operator& op, const std::vector<NamedValue>& inputs,
                                            const std::vector<NamedValue>& outputs,
                                            const Attributes& attributes,
                                            const std::vector<PlacedGradient>& of_outputs) {
  std::vector<PlacedGradient> result;
  for (const NamedValue& x : inputs) result.push_back({x.name, {}});
  const bool plain = all_replicated(inputs) && std::ranges::all_of(of_outputs, [](const PlacedGradient& g) {
                       return g.placement.is_replicated();
                     });
  if (plain) return result;
  const Labels labels(op, inputs, attributes, outputs);
  for (const Axis axis : placed_axes) {
    if (all_replicated(inputs, axis) && std::ranges::all_of(of_outputs, [&](const PlacedGradient& g) {
          return g.placement[axis] == replicated;
        }))
      continue;
    Sharded all;
    bool is_partial = false;
    for (const NamedValue& x : inputs) collect(all, labels, x.name, x.value.placement[axis]);
    for (const PlacedGradient& g : of_outputs) {
      collect(all, labels, g.name, g.placement[axis]);
      is_partial |= g.placement[axis] == partial;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Placed& own = inputs[i].value.placement[axis];
      const bool is_cut = own.how == Placed::How::sharded;
      // A sum over what is sharded elsewhere, or of rows of which each rank has its own.
      const bool sums_shares = is_partial || (!all.empty() && !is_cut);
      result[i].placement[axis] = sums_shares ? partial : is_cut ? own : replicated;
    }
  }
  return result;
}

}  // namespace assay::align
