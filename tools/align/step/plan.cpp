#include "assay/align/step/plan.h"

#include <algorithm>

#include "assay/align/settings/strategy.h"
#include "assay/align/step/shape_pass.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

void expect_divides(std::string_view what, std::int64_t count, std::string_view axis, std::int64_t ranks) {
  if (count % ranks != 0) throw Error("{} {} do not divide over {} = {}", count, what, axis, ranks);
}

void check_attention(const Model& m, const Parallel& p) {
  expect_divides("attention heads", m.attention.heads, "tp", p.tp);
  const bool grouped = m.attention.kind == AttentionKind::gqa;
  if (grouped) expect_divides("heads of keys", m.attention.kv_heads, "tp", p.tp);
  if (p.cp > 1 && p.context == ContextMode::ulysses) {
    expect_divides("attention heads of a tp rank", m.attention.heads / p.tp, "cp", p.cp);
    if (grouped) expect_divides("heads of keys of a tp rank", m.attention.kv_heads / p.tp, "cp", p.cp);
  }
}

void check_batch(const Batch& batch, const Parallel& p) {
  if (batch.batch_first && (p.cp > 1 || p.redistribute))
    throw Error(
        "rows that are sequence after sequence (--batch-first) are not cut by cp, nor dealt out anew; "
        "expected neither");
  const std::int64_t chunks = p.cp > 1 && p.context == ContextMode::ring ? 2 * p.cp : p.cp;
  expect_divides("tokens of a sequence", batch.length, chunks == p.cp ? "cp" : "2 cp", chunks);
  expect_divides("tokens of a context parallel rank", batch.length / p.cp, "tp", p.sp ? p.tp : 1);
}

void check_experts(const Model& m, const Batch& batch, const Parallel& p) {
  const bool has_experts = m.moe.experts > 0;
  if (!has_experts && (p.ep > 1 || p.etp > 1)) throw Error("the model has no experts; leave out ep and etp");
  const std::int64_t ranks = p.tp * p.cp * p.dp;
  if (ranks % (p.etp * p.ep) != 0)
    throw Error("ep {} times etp {} does not divide tp {} times cp {} times dp {}", p.ep, p.etp, p.tp, p.cp,
                p.dp);
  if (p.dispatch == Dispatch::hierarchical && p.ep % p.node != 0)
    throw Error("node = {} ranks do not divide ep = {}", p.node, p.ep);
  if (p.node > 1 && p.dispatch != Dispatch::hierarchical)
    throw Error("node is of dispatch=hierarchical alone");
  if (!has_experts) return;
  expect_divides("experts", m.moe.experts, "ep", p.ep);
  expect_divides("columns of an expert", m.moe.ffn, "etp", p.etp);
  if (!p.sp) expect_divides("tokens of a context parallel rank", batch.tokens() / p.cp, "tp", p.tp);
}

class Planner {
 public:
  Planner(const Model& model, const Batch& batch, const Mesh& mesh)
      : model_(model), batch_(batch), mesh_(mesh) {}

  void add(const Stage& stage, const std::vector<std::int64_t>& ranks, Plan& plan) const {
    const ShapePass pass(model_, batch_, mesh_, stage);
    for (const Machine::NamedParameter& p : pass.machine.parameters()) {
      PlannedParameter& planned = plan[p.name];
      planned.whole = p.whole;
      planned.shardings = p.shardings;
      const std::optional<MeshPlacement>& gradient = pass.gradients[p.value.id];
      planned.has_gradient |= gradient.has_value();
      if (gradient) planned.summed_over = gradient->partial_axes();
      for (const std::int64_t rank : ranks) {
        if (std::ranges::find(planned.holders, rank) == planned.holders.end())
          planned.holders.push_back(rank);
      }
    }
  }

 private:
  const Model& model_;
  const Batch& batch_;
  const Mesh mesh_;
};

}  // namespace

void check_strategy(const Model& m, const Batch& batch, const Parallel& p) {
  check_needs(p);
  check_attention(m, p);
  check_batch(batch, p);
  check_experts(m, batch, p);
  expect_divides("tokens of the vocabulary", m.vocabulary, "tp", p.tp);
}

Plan make_plan(const Model& model, const Batch& batch, const Parallel& parallel, const Pipeline& pipeline,
               std::int64_t micro_batches) {
  check_strategy(model, batch, parallel);
  check_modes(model, modes(batch, model, parallel), parallel, micro_batches * parallel.dp);
  Plan plan;
  const Planner planner(model, batch, Mesh(parallel, 0));
  for (std::size_t s = 0; s < pipeline.stages().size(); ++s) {
    const auto stage = static_cast<std::int64_t>(s);
    // Of DualPipe two ranks hold a stage: the first and the last micro-batch's.
    planner.add(pipeline.stages()[s],
                {pipeline.rank_of(stage, 0), pipeline.rank_of(stage, micro_batches - 1)}, plan);
  }
  for (auto& [name, planned] : plan) {
    // Ranks of dp work on other micro-batches; experts' axes are over the same ranks.
    if (!is_of_experts(name) && parallel.dp > 1) planned.summed_over.push_back(Axis::dp);
    std::ranges::sort(planned.holders);
  }
  return plan;
}

}  // namespace assay::align
