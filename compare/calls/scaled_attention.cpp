#include <fmt/format.h>

#include <cmath>

#include "assay/compare/calls/published_values.h"
#include "assay/compare/calls/replay.h"

namespace assay {

std::vector<CallVariant> Replay::with_scales() const {
  std::vector<CallVariant> variants;
  const Tensor* q = find_tensor(calls_.front().inputs, "q");
  if (op().name != "attention" || q == nullptr || q->shape().empty()) return variants;
  for (const double factor : yarn_factors) {
    for (const double weight : yarn_score_weights) {
      const double m = 0.1 * weight * std::log(factor) + 1;
      const double scale = m * m / std::sqrt(static_cast<double>(q->shape().back()));
      for (CallVariant variant : variants_of(op())) {
        variant.attributes.set("scale", scale);
        variant.text += fmt::format("{}scale = {:.6g}", variant.text.empty() ? "" : ", ", scale);
        variants.push_back(std::move(variant));
      }
    }
  }
  return variants;
}

}  // namespace assay
