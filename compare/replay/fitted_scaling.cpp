#include <fmt/format.h>

#include <cmath>

#include "assay/compare/replay/replay.h"
#include "assay/golden/error.h"

namespace assay {

// Weights and their gradients are proportional to it.
std::vector<CallVariant> Replay::with_fitted_scaling() const {
  std::vector<CallVariant> fitted;
  if (op().name != "router_topk" || !is_float(result_.dtype())) return fitted;
  const std::vector<double> actual = result_.values();
  for (const CallVariant& variant : variants_of(op())) {
    if (variant.attributes.has("scaling")) continue;
    try {
      const std::vector<double> golden = golden_values(variant, {});
      double product = 0, square = 0;
      for (std::size_t i = 0; i < actual.size(); ++i) {
        product += actual[i] * golden[i];
        square += golden[i] * golden[i];
      }
      if (!(square > 0) || !std::isfinite(product)) continue;
      for (const int digits : {1, 2, 3, 6}) {
        const std::string text = fmt::format("{:.{}g}", product / square, digits);
        fitted.push_back(variant);
        fitted.back().attributes.set("scaling", std::stod(text));
        fitted.back().text += fmt::format("{}scaling = {}", variant.text.empty() ? "" : ", ", text);
      }
    } catch (const Error&) {  // not from these inputs
    }
  }
  return fitted;
}

}  // namespace assay
