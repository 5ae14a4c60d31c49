#include "assay/compare/causes/optimizer/gradient_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/values/elements.h"
#include "assay/compare/causes/values/factor_names.h"
#include "assay/dumps/layout/layout.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

std::string layer_prefix(const std::string& name) {
  const std::size_t at = name.find("layers.");
  if (at == std::string::npos) return name;
  const std::size_t begin = at + std::string("layers.").size();
  return name.substr(0, std::min(name.find('.', begin), name.size()));
}

// The pieces of one parameter that the first ranks of an axis hold, each once.
void add_pieces(GradientSquares& found, const ReducedGradient& g, const Dump& dump) {
  for (std::size_t axis = 0; axis < dump.mesh.dims.size(); ++axis) {
    std::set<Box> seen;
    for (const std::size_t i : g.records) {
      const Record& r = dump.records[i];
      const bool is_cut = axis < r.placements.size() && r.placements[axis].kind == Placement::Kind::shard;
      if (!is_cut || r.mesh_coordinate.size() <= axis || r.mesh_coordinate[axis] != 0) continue;
      if (!seen.insert(box_of(r, dump.mesh)).second) continue;
      const TensorSource piece = dump.source(i);
      double& sum = found.of_first[dump.mesh.dims[axis]][g.name];
      for_each_element({&piece}, [&](std::int64_t, const double* x) { sum += x[0] * x[0]; });
    }
  }
}

// Squares of norms that a program may have made instead, the likeliest first.
class Reasons {
 public:
  Reasons(const GradientSquares& s, double norm, double error, std::span<const KnownSize> sizes)
      : s_(s), sizes_(sizes), names_(factor_names(sizes)), wanted_(norm * norm), slack_(2 * error * wanted_) {
    for (const auto& [name, square] : s.by_parameter) total_ += square;
    groups_ = parameter_groups(s.parameters);
    for (const NamedShape& p : s.parameters) groups_.push_back({p.name, {p.name}});
  }

  std::optional<NormReason> find() {
    whole();
    if (!found_) counted();
    if (!found_) of_layers();
    return found_;
  }

 private:
  void take(double square, const std::string& text) {
    ++tried_;
    if (found_ || !(std::abs(square - wanted_) <= slack_)) return;
    const double fit = std::log2(std::abs(wanted_ - total_) / slack_), tried = std::log2(tried_);
    if (beats_chance(fit, tried)) found_ = NormReason{text, fit - tried};
  }

  // Another function of all gradients, or all of them some number of times.
  void whole() {
    take(total_ * total_, "it is the square of the norm, without the root");
    take(s_.peak * s_.peak, "it is the largest magnitude, not the root of the sum of squares");
    take(s_.magnitudes * s_.magnitudes, "it is the sum of magnitudes, not the root of the sum of squares");
    for (const KnownSize& size : sizes_) {
      const auto k = static_cast<double>(size.size);
      if (k < 2 || counts().contains(k * k)) continue;
      take(k * k * total_,
           fmt::format("it is of gradients before they are divided by {}", describe_factor(k, names_)));
      take(total_ / (k * k),
           fmt::format("gradients are divided by {} once more in it", describe_factor(k, names_)));
    }
    for (const double k : counts()) {
      const std::string named = describe_factor(k, names_);
      take(k * total_,
           fmt::format("sqrt({0:g}) times the norm: every gradient is counted {1} times", k, named));
      take(total_ / k,
           fmt::format("1/sqrt({0:g}) of the norm: a part of every gradient, or 1/{1} of its square", k,
                       named));
    }
  }

  // How often ranks may count a gradient: once for each rank of an axis, or of several.
  std::set<double> counts() const {
    std::set<double> all = {2};  // what is tied, or done twice
    for (const KnownSize& size : sizes_) {
      if (size.size > 1) all.insert(static_cast<double>(size.size));
    }
    return all;
  }

  // The gradients of a group left out, counted several times, alone, or of some ranks only.
  void counted() {
    std::set<std::string> every;
    for (const NamedShape& p : s_.parameters) every.insert(p.name);
    of_first_ranks({"every gradient", every});
    for (const ParameterGroup& g : groups_) {
      const double own = s_.square_of(g.members);
      if (!(own > slack_)) continue;
      take(total_ - own, fmt::format("without {}", g.text));
      of_first_ranks(g);
      for (const double k : counts())
        take(total_ + (k - 1) * own, fmt::format("{} counted {} times", g.text, describe_factor(k, names_)));
      take(own, fmt::format("of {} only", g.text));
    }
  }

  void of_first_ranks(const ParameterGroup& g) {
    for (const auto& [axis, squares] : s_.of_first) {
      double missing = 0;
      for (const auto& [name, first] : squares)
        missing += g.members.contains(name) ? s_.by_parameter.at(name) - first : 0;
      if (missing > 0)
        take(total_ - missing, fmt::format("of {} the part of the first {} rank only", g.text, axis));
    }
  }

  // Layers that follow each other: a stage of a pipeline.
  void of_layers() {
    std::vector<std::pair<std::string, double>> layers;
    for (const NamedShape& p : s_.parameters) {
      const std::string layer = layer_prefix(p.name);
      if (layers.empty() || layers.back().first != layer) layers.emplace_back(layer, 0);
      layers.back().second += s_.by_parameter.at(p.name);
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      double sum = 0;
      for (std::size_t k = i; k < layers.size(); ++k) {
        sum += layers[k].second;
        take(sum, fmt::format("of {} to {} only", layers[i].first, layers[k].first));
      }
    }
  }

  const GradientSquares& s_;
  std::span<const KnownSize> sizes_;
  std::vector<NamedFactor> names_;
  std::vector<ParameterGroup> groups_;
  double wanted_, slack_, total_ = 0, tried_ = 0;
  std::optional<NormReason> found_;
};

}  // namespace

double GradientSquares::norm() const {
  double sum = 0;
  for (const auto& [name, square] : by_parameter) sum += square;
  return std::sqrt(sum);
}

double GradientSquares::square_of(const std::set<std::string>& names) const {
  double sum = 0;
  for (const std::string& name : names) {
    const auto at = by_parameter.find(name);
    if (at != by_parameter.end()) sum += at->second;
  }
  return sum;
}

// Errors of sums grow with the root of the number of terms (Higham & Mary 2019, doi:10.1137/18M1226312); a
// square and the root are rounded once each. The root halves all errors before it.
double GradientSquares::error(DType arithmetic) const {
  const double sums =
      std::sqrt(static_cast<double>(largest)) + std::sqrt(static_cast<double>(by_parameter.size())) + 2;
  return improbable * unit_roundoff(arithmetic) * sums / 2;
}

double GradientSquares::error_of_storing(DType arithmetic) const {
  const double u = unit_roundoff(coarsest);
  return u > unit_roundoff(arithmetic) ? 2 * u : 0;
}

GradientSquares gradient_squares(const std::vector<ReducedGradient>& gradients, bool is_actual,
                                 const Dump& actual) {
  GradientSquares found;
  for (const ReducedGradient& g : gradients) {
    const std::optional<TensorSource>& own = is_actual ? g.actual : g.reference;
    if (!own) continue;
    double sum = 0;
    for_each_element({&*own}, [&](std::int64_t, const double* x) {
      sum += x[0] * x[0];
      found.magnitudes += std::abs(x[0]);
      found.peak = std::max(found.peak, std::abs(x[0]));
    });
    found.by_parameter[g.name] = sum;
    found.parameters.push_back({g.name, g.shape});
    found.largest = std::max(found.largest, own->size());
    const DType dtype = own->dtype();
    if (unit_roundoff(dtype) > unit_roundoff(found.coarsest)) found.coarsest = dtype;
    const bool is_first = found.by_parameter.size() == 1;
    if (is_first || unit_roundoff(dtype) < unit_roundoff(found.finest)) found.finest = dtype;
    if (is_actual) add_pieces(found, g, actual);
  }
  return found;
}

std::optional<NormReason> explain_norm(const GradientSquares& squares, double norm, double error,
                                       std::span<const KnownSize> sizes) {
  return Reasons(squares, norm, error, sizes).find();
}

}  // namespace assay
