#include "assay/align/given/given_routing.h"

#include "assay/align/forward/architecture.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

constexpr const char *router = "router_topk", *choice = "choice of experts (output index)";

}  // namespace

GivenRouting::GivenRouting(const std::string& path, const Model& model, const Batches& batches)
    : given_(path) {
  for (const ModuleCall& call : forward_calls(model, {})) {
    if (call.op == nullptr || call.op->name != router) continue;
    const auto [at, is_new] = routers_.try_emplace(call.module, given_, [&](const LogicalTensor& t) {
      return t.id.module == call.module && t.id.slot == "output" && t.id.arg == "index" && t.op == router;
    });
    const Shape expected = {batches.batch.tokens(), model.moe.top_k};
    for (std::int64_t k = 0; k < batches.all(); ++k) {
      const LogicalTensor& t = at->second.at({k / batches.micro_batches, k % batches.micro_batches},
                                             choice + (" of " + call.module));
      if (t.shape != expected || is_float(t.dtype))
        throw Error("{}: '{}' is {} {}; expected integers {}: {} experts of each token", path,
                    to_string(t.id), name(t.dtype), assay::to_string(t.shape), assay::to_string(expected),
                    expected.back());
    }
  }
  if (routers_.empty()) throw Error("{}: the model {} has no router to take its choices", path, model.name);
}

Tensor GivenRouting::of(const std::string& module, const MicroBatch& which) const {
  return given_.read(routers_.at(module).at(which, choice));
}

}  // namespace assay::align
