#include "assay/compare/pairs/near_tie.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "assay/operators/engine/scoring.h"

namespace assay {
namespace {

using Scores = std::vector<double>;  // of one token, by expert
using Choice = std::vector<std::int64_t>;

class Router {
 public:
  Router(const Tensor& logits, std::span<const double> bias) : logits_(logits.values()), bias_(bias) {
    experts_ = logits.shape().back();
  }

  Scores scores(std::int64_t token, const Scoring& scoring) const {
    const auto begin = logits_.begin() + token * experts_;
    Scores s(begin, begin + experts_);
    scoring.apply(s);
    for (std::size_t e = 0; e < bias_.size(); ++e) s[e] += bias_[e];
    return s;
  }
  double logit(std::int64_t token, std::int64_t expert) const {
    return logits_[static_cast<std::size_t>(token * experts_ + expert)];
  }

 private:
  std::vector<double> logits_;
  std::span<const double> bias_;
  std::int64_t experts_;
};

// The choices of one token, in the order of their numbers.
Choice choice_of(const Choice& indices, std::int64_t token, std::int64_t choices) {
  const auto begin = indices.begin() + token * choices;
  Choice c(begin, begin + choices);
  std::ranges::sort(c);
  return c;
}

// Every expert that was chosen scores at least as high as every expert that was not.
bool reproduces(const Scores& scores, const Choice& chosen) {
  double lowest_in = INFINITY, highest_out = -INFINITY;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const bool in = std::ranges::binary_search(chosen, static_cast<std::int64_t>(e));
    if (in) lowest_in = std::min(lowest_in, scores[e]);
    if (!in) highest_out = std::max(highest_out, scores[e]);
  }
  return lowest_in >= highest_out;
}

Choice only_in(const Choice& a, const Choice& b) {
  Choice out;
  std::ranges::set_difference(a, b, std::back_inserter(out));
  return out;
}

}  // namespace

std::optional<RouterScores> router_scores(Identity id, const Dump& dump, const TensorsById& tensors) {
  if (id.arg != "indices") return std::nullopt;
  id.arg = "logits";
  const LogicalTensor* logits = tensors.with_values(dump, id);
  if (logits == nullptr) return std::nullopt;
  // The bias that was in force: recorded before the step.
  const Identity bias_id{id.step, -1, Phase::forward, id.module, "state", "expert_bias", 0};
  const LogicalTensor* bias = tensors.with_values(dump, bias_id);
  return RouterScores{merge(dump, *logits).tensor.whole(),
                      bias == nullptr ? std::vector<double>() : merge(dump, *bias).tensor.whole().values()};
}

std::string explain_choices(const Tensor& actual_indices, const Tensor& reference_indices,
                            const RouterScores& recorded, const Row& row) {
  const Tensor& logits = recorded.logits;
  const std::vector<double>& bias = recorded.bias;
  const Shape &chosen = reference_indices.shape(), &scored = logits.shape();
  const bool fits = chosen.size() == scored.size() && !chosen.empty() && actual_indices.shape() == chosen &&
                    std::equal(chosen.begin(), chosen.end() - 1, scored.begin()) &&
                    is_float(logits.dtype()) && !is_float(actual_indices.dtype()) &&
                    !is_float(reference_indices.dtype());
  if (!fits || chosen.back() == 0 ||
      (!bias.empty() && static_cast<std::int64_t>(bias.size()) != scored.back()))
    return "";
  const Choice actual = actual_indices.indices(), reference = reference_indices.indices();
  const auto in_range = [&](std::int64_t e) { return e >= 0 && e < scored.back(); };
  if (!std::ranges::all_of(actual, in_range) || !std::ranges::all_of(reference, in_range)) return "";

  const Router router(logits, bias);
  const std::int64_t choices = chosen.back(), tokens = reference_indices.size() / choices;
  const auto scoring = std::ranges::find_if(scorings, [&](const Scoring& s) {
    // Without a bias all of them rank alike: the logits speak for themselves.
    if (bias.empty() && s.name != "logit") return false;
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (!reproduces(router.scores(t, s), choice_of(reference, t, choices))) return false;
    }
    return true;
  });
  if (scoring == std::end(scorings)) return "";

  std::int64_t differing = 0, explained = 0;
  double widest = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Choice a = choice_of(actual, t, choices), r = choice_of(reference, t, choices);
    const Choice gained = only_in(a, r), lost = only_in(r, a);
    if (gained.empty()) continue;
    ++differing;
    const Scores scores = router.scores(t, *scoring);
    bool near_tie = true;
    for (const std::int64_t g : gained) {
      for (const std::int64_t l : lost) {
        const double gap =
            std::abs(scores[static_cast<std::size_t>(g)] - scores[static_cast<std::size_t>(l)]);
        widest = std::max(widest, gap);
        // Both logits may be off by what the row allows, towards each other.
        const double logits_off =
            2 * row.atol + row.rtol * (std::abs(router.logit(t, g)) + std::abs(router.logit(t, l)));
        near_tie = near_tie && gap <= scoring->slope * logits_off;
      }
    }
    explained += near_tie ? 1 : 0;
  }
  if (differing == 0) return "every token chooses the same experts, in another order";
  return fmt::format(
      "{} of {} tokens choose other experts, {} of them at near-ties: the reference's {} scores of the "
      "swapped experts differ by at most {:.2g}",
      differing, tokens,
      explained == differing ? "all"
      : explained == 0       ? "none"
                             : std::to_string(explained),
      scoring->name, widest);
}

}  // namespace assay
