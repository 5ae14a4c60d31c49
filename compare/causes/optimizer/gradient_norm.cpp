#include "assay/compare/causes/optimizer/gradient_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/values/elements.h"
#include "assay/compare/causes/values/factor_names.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

bool is_within(double value, double target, double slack) {
  return std::abs(value - target) <= slack;
}

// Blocks in the order of a pipeline's stages, each with its squares.
struct Stages {
  std::vector<std::string> names;
  std::vector<double> squares;
};

std::string layer_prefix(const std::string& name) {
  const std::size_t at = name.find("layers.");
  if (at == std::string::npos) return name;
  const std::size_t begin = at + std::string("layers.").size();
  return name.substr(0, std::min(name.find('.', begin), name.size()));
}

}  // namespace

double GradientSquares::norm() const {
  double sum = 0;
  for (const auto& [name, square] : by_parameter) sum += square;
  return std::sqrt(sum);
}

double GradientSquares::norm_of(const std::set<std::string>& names) const {
  double sum = 0;
  for (const std::string& name : names) {
    const auto at = by_parameter.find(name);
    if (at != by_parameter.end()) sum += at->second;
  }
  return std::sqrt(sum);
}

// Errors of sums grow with the root of the number of terms (Higham & Mary 2019, doi:10.1137/18M1226312).
// The root halves them.
double GradientSquares::error(double u) const {
  return improbable * u *
         (std::sqrt(static_cast<double>(largest)) + std::sqrt(static_cast<double>(by_parameter.size())) + 2) /
         2;
}

GradientSquares gradient_squares(const std::vector<ReducedGradient>& gradients, bool is_actual) {
  GradientSquares found;
  for (const ReducedGradient& g : gradients) {
    double sum = 0;
    for_each_element({is_actual ? &g.actual : &g.reference},
                     [&](std::int64_t, const double* x) { sum += x[0] * x[0]; });
    found.by_parameter[g.name] = sum;
    found.parameters.push_back({g.name, g.shape});
    found.largest = std::max(found.largest, g.actual.size());
  }
  return found;
}

std::optional<std::string> explain_norm(const GradientSquares& squares, double norm, double error,
                                        std::span<const KnownSize> sizes) {
  const double right = squares.norm();
  const double total = right * right, wanted = norm * norm;
  const double slack = 2 * error * wanted;  // of the square
  const std::vector<NamedFactor> names = factor_names(sizes);
  // The whole sum, some number of times.
  std::vector<double> counts = {2, 3, 4, 8, 16};
  for (const KnownSize& s : sizes) counts.push_back(static_cast<double>(s.size));
  std::ranges::sort(counts);
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  for (const double k : counts) {
    if (k < 2) continue;
    const std::string named = describe_factor(k, names);
    if (is_within(wanted, k * total, slack))
      return fmt::format("sqrt({0:g}) times the norm: every gradient is counted {1} times", k, named);
    if (is_within(wanted, total / k, slack))
      return fmt::format("1/sqrt({0:g}) of the norm: a part of every gradient, or 1/{1} of its square", k,
                         named);
  }
  // A group or a single parameter, some number of times. How often must show well beside the error.
  constexpr double shows = 0.02;
  std::vector<ParameterGroup> groups = parameter_groups(squares.parameters);
  for (const NamedShape& p : squares.parameters) groups.push_back({p.name, {p.name}});
  counts.insert(counts.begin(), 0);
  for (const ParameterGroup& g : groups) {
    const double own = std::pow(squares.norm_of(g.members), 2);
    if (!(own > 0) || slack / own > shows) continue;
    const double times = 1 + (wanted - total) / own;
    for (const double k : counts) {
      if (k == 1 || !is_within(times, k, slack / own)) continue;
      if (k == 0) return fmt::format("without {}", g.text);
      return fmt::format("{} counted {} times", g.text, describe_factor(k, names));
    }
    if (is_within(wanted, own, slack)) return fmt::format("of {} only", g.text);
  }
  // Some layers that follow each other: a stage of a pipeline.
  Stages stages;
  for (const NamedShape& p : squares.parameters) {
    const std::string layer = layer_prefix(p.name);
    if (stages.names.empty() || stages.names.back() != layer) {
      stages.names.push_back(layer);
      stages.squares.push_back(0);
    }
    stages.squares.back() += squares.by_parameter.at(p.name);
  }
  for (std::size_t i = 0; i < stages.names.size(); ++i) {
    double sum = 0;
    for (std::size_t k = i; k < stages.names.size(); ++k) {
      sum += stages.squares[k];
      if (is_within(wanted, sum, slack))
        return fmt::format("of {} to {} only", stages.names[i], stages.names[k]);
    }
  }
  return {};
}

}  // namespace assay
