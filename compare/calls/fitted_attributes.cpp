// Attributes that no recorder writes and no row lists: solved from the recorded result, as the operator says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/relative_l2.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

constexpr int halvings = 40;  // at most, of the 15 decades of an epsilon: to 1e-10 of its logarithm

// Numbers as people write them.
constexpr int usual_digits[] = {1, 2, 3, 6};

CallVariant merged(CallVariant variant, const Candidate& more) {
  for (const auto& [name, value] : more.attributes.values()) variant.attributes.set(name, value);
  variant.text += (variant.text.empty() ? "" : ", ") + more.text;
  return variant;
}

double shortened_to(int digits, double value) {
  return std::stod(fmt::format("{:.{}g}", value, digits));
}

// Whether people write both down alike.
bool are_alike(double a, double b) {
  return std::ranges::all_of(usual_digits,
                             [&](int digits) { return shortened_to(digits, a) == shortened_to(digits, b); });
}

}  // namespace

const Solved* Call::solved(Solved::By by) const {
  const auto found = std::ranges::find(op().solved, by, &Solved::by);
  return found == op().solved.end() ? nullptr : &*found;
}

int Call::evaluations_to_bisect() const {
  return solved(Solved::By::bisection) != nullptr ? halvings + 2 : 0;  // and both ends
}

std::vector<CallVariant> Call::with_bisected(const CallVariant& from) const {
  std::vector<CallVariant> variants;
  const Solved* row = solved(Solved::By::bisection);
  if (row == nullptr) return variants;
  try {
    double low = row->low, high = row->high;
    const auto golden_with = [&](double value) { return values(with(op(), from, row->attribute, value)); };
    const std::vector<double> a = result_.values(), at_low = golden_with(low), at_high = golden_with(high);
    // How far the recorded result is on the way from one end to the other: falls as the attribute grows.
    const auto beyond = [&](const std::vector<double>& golden) {
      double sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - golden[i]) * (at_low[i] - at_high[i]);
      return sum;
    };
    if (!(beyond(at_low) < 0 && beyond(at_high) > 0)) return variants;
    std::vector<double> from_low = at_low, from_high = at_high;
    for (int i = 0; i < halvings && !are_alike(low, high); ++i) {
      const double middle = std::sqrt(low * high);
      std::vector<double> golden = golden_with(middle);
      // What is further away than the ends are from each other, both ways, may fit with none between them.
      if (relative_l2(a, golden) > may_fit_within + 2 * relative_l2(from_low, from_high)) return variants;
      const bool is_beyond = beyond(golden) > 0;
      (is_beyond ? high : low) = middle;
      (is_beyond ? from_high : from_low) = std::move(golden);
    }
    for (const int digits : usual_digits)
      variants.push_back(with(op(), from, row->attribute, shortened_to(digits, low)));
  } catch (const Error&) {  // not from these inputs
  }
  return variants;
}

std::vector<CallVariant> Call::with_factor() const {
  std::vector<CallVariant> fitted;
  const Solved* row = solved(Solved::By::factor);
  if (row == nullptr || !is_float(result_.dtype())) return fitted;
  const std::vector<double> actual = result_.values();
  for (const CallVariant& variant : variants_of(op())) {
    if (variant.attributes.has(row->attribute)) continue;
    try {
      // What other operators add, as the product with a tied table, has no such factor.
      const std::vector<Tensor> parts = golden(variant, {});
      double product = 0, square = 0;
      for (std::size_t i = 0; i < actual.size(); ++i) {
        double own = 0, others = 0;
        for (std::size_t c = 0; c < parts.size(); ++c)
          (summands_[c].op == &op() ? own : others) += parts[c].value(static_cast<std::int64_t>(i));
        product += (actual[i] - others) * own;
        square += own * own;
      }
      if (!(square > 0) || !std::isfinite(product)) continue;
      for (const int digits : usual_digits)
        fitted.push_back(with(op(), variant, row->attribute, shortened_to(digits, product / square)));
    } catch (const Error&) {  // not from these inputs
    }
  }
  return fitted;
}

std::vector<CallVariant> Call::with_candidates(const CallVariant& from) const {
  std::vector<CallVariant> all;
  if (op().candidates == nullptr) return all;
  std::vector<NamedTensor> inputs = summands_.front().inputs;
  const Recorded call{inputs, summands_.front().output, result_};
  for (const Candidate& c : op().candidates(from.attributes, call)) all.push_back(merged(from, c));
  return all;
}

std::vector<CallVariant> Call::with_candidates() const {
  std::vector<CallVariant> all;
  for (const CallVariant& variant : variants_of(op()))
    std::ranges::move(with_candidates(variant), std::back_inserter(all));
  return all;
}

std::vector<CallVariant> Call::with_other_values(const CallVariant& right) const {
  std::vector<CallVariant> all;
  if (op().other_values == nullptr) return all;
  for (const Candidate& c : op().other_values->of(complete_attributes(op(), right.attributes),
                                                  shapes_of(summands_.front().inputs))) {
    CallVariant variant = right;
    for (const auto& [name, value] : c.attributes.values()) variant = with(op(), variant, name, value);
    all.push_back(std::move(variant));
  }
  return all;
}

}  // namespace assay
