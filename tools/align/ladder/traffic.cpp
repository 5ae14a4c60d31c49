#include "assay/align/ladder/traffic.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "assay/align/step/plan.h"
#include "assay/align/step/shape_pass.h"
#include "assay/align/strategies/pipeline.h"

namespace assay::align {
namespace {

std::string without_step(const std::string& module) {
  return module.substr(0, module.find('/'));
}

std::string_view word(Movement::Kind kind) {
  constexpr std::string_view words[] = {"copy",  "all-reduce", "all-gather", "reduce-scatter",
                                        "split", "all-to-all", "shift",      "shift"};
  return words[static_cast<std::size_t>(kind)];
}

bool talks(Movement::Kind kind) {
  return kind != Movement::Kind::copy && kind != Movement::Kind::split;
}

class Listing {
 public:
  explicit Listing(const Rung& rung)
      : model_(load_model(rung.work.model)),
        batch_{rung.work.sequences, rung.work.length, rung.work.prompt},
        parallel_(rung.parallel),
        mesh_(parallel_, 0),
        pipeline_(parallel_, model_, rung.work.micro_batches / parallel_.dp) {}

  std::vector<Traffic> run(const Rung& rung) {
    for (const Stage& stage : pipeline_.stages()) add(stage);
    for (const auto& [name, planned] :
         make_plan(model_, batch_, parallel_, pipeline_, rung.work.micro_batches / parallel_.dp)) {
      for (const Axis axis : planned.summed_over) add(name, "sum of the gradient", axis, true);
      if (planned.holders.size() > 1 && planned.has_gradient)
        add(name, "sum of the gradient", Axis::pp, true);
    }
    if (parallel_.pp > 1) {
      add("between stages", "send", Axis::pp, false);
      add("between stages", "send", Axis::pp, true);
    }
    return std::move(all_);
  }

 private:
  void add(const Stage& stage) {
    const ShapePass pass(model_, batch_, mesh_, stage);
    for (const Machine::Node& node : pass.machine.nodes()) {
      if (node.kind == Machine::Node::Kind::exchange) {
        for (const bool backward : {false, true})
          add(without_step(node.module), "all-to-all", Axis::ep, backward);
      } else if (node.kind == Machine::Node::Kind::movement) {
        if (talks(node.movement->kind))
          add(without_step(node.module), word(node.movement->kind), node.movement->axis, false);
        const auto& placed = pass.gradients[node.outputs.front().value.id];
        const auto back = placed ? adjoint(*node.movement, (*placed)[node.movement->axis]) : std::nullopt;
        if (back && talks(back->kind)) add(without_step(node.module), word(back->kind), back->axis, true);
      }
    }
  }

  void add(const std::string& module, std::string_view what, Axis axis, bool backward) {
    if (!known_.insert({module, std::string(what), axis, backward}).second) return;
    Traffic t = {module, std::string(what), axis, {}, backward};
    std::set<int> seen;
    for (int rank = 0; rank < static_cast<int>(parallel_.ranks()); ++rank) {
      if (seen.contains(rank)) continue;
      t.groups.push_back(Mesh(parallel_, rank).group({axis}));
      seen.insert(t.groups.back().begin(), t.groups.back().end());
    }
    if (t.groups.front().size() > 1) all_.push_back(std::move(t));
  }

  const Model model_;
  const Batch batch_;
  const Parallel parallel_;
  const Mesh mesh_;
  const Pipeline pipeline_;
  std::set<std::tuple<std::string, std::string, Axis, bool>> known_;
  std::vector<Traffic> all_;
};

// "model.layers.3.mlp" of "model.layers.3.mlp.gate".
std::string parent_of(const std::string& module) {
  const std::size_t dot = module.rfind('.');
  return dot == std::string::npos ? "" : module.substr(0, dot);
}

}  // namespace

std::vector<Traffic> traffic_of(const Rung& rung) {
  if (rung.work.model.empty()) return {};
  return Listing(rung).run(rung);
}

std::vector<Traffic> behind(const std::vector<Traffic>& all, const std::string& module, bool is_gradient,
                            bool backward) {
  std::vector<Traffic> found;
  const auto take = [&](auto&& which) { std::ranges::copy_if(all, std::back_inserter(found), which); };
  if (is_gradient) {
    take([&](const Traffic& t) {
      return t.what == "sum of the gradient" && t.module.starts_with(module + ".");
    });
    return found;
  }
  for (std::string at = module; found.empty() && at.find("layers.") != std::string::npos; at = parent_of(at))
    take([&](const Traffic& t) {
      return t.module == at && t.backward == backward && t.what != "sum of the gradient";
    });
  if (found.empty()) take([&](const Traffic& t) { return t.module == module && t.backward == backward; });
  return found;
}

}  // namespace assay::align
