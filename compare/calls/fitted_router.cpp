#include <fmt/format.h>

#include <cmath>

#include "assay/compare/calls/replay.h"
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

std::vector<CallVariant> Replay::with_groups() const {
  std::vector<CallVariant> grouped;
  const Tensor* logits = find_tensor(calls_.front().inputs, "logits");
  // Weights are of any choice.
  const bool shows = !is_float(result_.dtype()) || calls_.front().output == "selection_gap";
  if (op().name != "router_topk" || !shows || logits == nullptr || logits->shape().empty()) return grouped;
  const std::int64_t experts = logits->shape().back();
  for (std::int64_t groups = 2; groups < experts; ++groups) {
    if (experts % groups != 0) continue;
    for (std::int64_t kept = 1; kept < groups; ++kept) {
      for (const char* score : {"softmax", "sigmoid"}) {
        for (const bool by_two : {true, false}) {  // DeepSeek-V3, Megatron-LM
          CallVariant v;
          v.attributes = {
              {"score", score},
              {"groups", std::vector<double>{static_cast<double>(groups), static_cast<double>(kept)}}};
          if (by_two) v.attributes.set("group_top", 2.0);
          v.text = fmt::format("score = \"{}\", {} of {} groups{}", score, kept, groups,
                               by_two ? ", by their two best" : "");
          grouped.push_back(std::move(v));
        }
      }
    }
  }
  return grouped;
}

}  // namespace assay
