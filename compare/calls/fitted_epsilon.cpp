#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/replay.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr int halvings = 40;  // of the 15 decades of epsilon: to 1e-10 of its logarithm

}  // namespace

int Replay::evaluations_to_fit_epsilon() const {
  const bool has_epsilon =
      std::ranges::find(op().attributes, "eps", &Attribute::name) != op().attributes.end();
  return op().name.ends_with("_norm") && has_epsilon ? halvings + 2 : 0;  // and both ends
}

std::vector<CallVariant> Replay::with_fitted_epsilon() const {
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

}  // namespace assay
