// Attributes that no recorder writes and no list holds: solved from the recorded result, or out of a family.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/judged_call.h"
#include "assay/compare/calls/published_values.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr int halvings = 40;  // of the 15 decades of epsilon: to 1e-10 of its logarithm

}  // namespace

int JudgedCall::evaluations_to_fit_epsilon() const {
  const bool has_epsilon =
      std::ranges::find(op().attributes, "eps", &Attribute::name) != op().attributes.end();
  return op().name.ends_with("_norm") && has_epsilon ? halvings + 2 : 0;  // and both ends
}

std::vector<CallVariant> JudgedCall::with_fitted_epsilon() const {
  std::vector<CallVariant> variants;
  if (evaluations_to_fit_epsilon() == 0) return variants;
  try {
    double low = 1e-15, high = 1;
    const auto with_epsilon = [this](double eps) { return golden_values({{{"eps", eps}}, {}, ""}, {}); };
    const std::vector<double> a = result_.values(), at_low = with_epsilon(low), at_high = with_epsilon(high);
    // How far the recorded result is on the way from one end to the other: falls as epsilon grows.
    const auto beyond = [&](const std::vector<double>& golden) {
      double sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - golden[i]) * (at_low[i] - at_high[i]);
      return sum;
    };
    if (!(beyond(at_low) < 0 && beyond(at_high) > 0)) return variants;
    for (int i = 0; i < halvings; ++i) {
      const double middle = std::sqrt(low * high);
      (beyond(with_epsilon(middle)) > 0 ? high : low) = middle;
    }
    for (const int digits : {1, 2, 3, 6}) {
      const std::string text = fmt::format("{:.{}g}", low, digits);
      variants.push_back({{{"eps", std::stod(text)}}, {}, "eps = " + text});
    }
  } catch (const Error&) {  // not from these inputs
  }
  return variants;
}

// Weights and their gradients are proportional to it.
std::vector<CallVariant> JudgedCall::with_fitted_scaling() const {
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

std::vector<CallVariant> JudgedCall::with_groups() const {
  std::vector<CallVariant> grouped;
  const Tensor* logits = find_tensor(summands_.front().inputs, "logits");
  // Weights are of any choice.
  const bool shows = !is_float(result_.dtype()) || summands_.front().output == "selection_gap";
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

std::vector<CallVariant> JudgedCall::with_scales() const {
  std::vector<CallVariant> variants;
  const Tensor* q = find_tensor(summands_.front().inputs, "q");
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
