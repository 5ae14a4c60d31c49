#include "assay/align/step/shape_pass.h"

#include "assay/align/strategies/regions.h"

namespace assay::align {
namespace {

std::int64_t tokens_of_rank(const Batch& batch, const Mesh& mesh) {
  const std::int64_t here = batch.tokens() / mesh.size(Axis::cp);
  return mesh.parallel().sp ? here / mesh.size(Axis::tp) : here;
}

}  // namespace

ShapePass::ShapePass(const Model& model, const Batch& batch, const Mesh& mesh, const Stage& stage)
    : machine(mesh) {
  std::optional<Value> x;
  if (!stage.embeds) x = machine.given({tokens_of_rank(batch, mesh), model.hidden}, residual_placement(mesh));
  const Forward result = forward(machine, model, batch, stage, x);
  std::vector<Value> seeds;
  for (const Loss& loss : result.losses) seeds.push_back(loss.value);
  if (!stage.finishes) seeds.push_back(result.x);
  gradients = machine.gradient_placements(seeds);
}

}  // namespace assay::align
