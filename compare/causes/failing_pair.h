#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "assay/compare/causes/diagnosis.h"

namespace assay {

/// Some elements of a pair, at rising positions.
struct Sample {
  std::vector<std::int64_t> at;
  std::vector<double> actual, reference;
};

/// A pair that was judged wrong, looked over once: what the explanations share.
struct FailingPair {
  TensorSource actual, reference;
  DiagnosisContext context;
  std::int64_t over = 0;      ///< elements over tolerance
  bool finite = true;         ///< all elements of both sides are
  std::int64_t zeros = 0;     ///< in actual, among the elements that pass
  double largest_actual = 0;  ///< among the finite
  double square_gap = 0;      ///< |sum a^2 - sum r^2|
  double square_slack = 0;    ///< how far the tolerances alone can take those sums apart
  Sample wrong;               ///< up to 4096 of the elements over tolerance, evenly taken
  Sample spread;              ///< up to 4096 of all elements, evenly taken

  FailingPair(const TensorSource& actual, const TensorSource& reference, const DiagnosisContext&);

  double bound(std::int64_t position) const {
    return context.allowed.bound.empty() ? 0 : context.allowed.bound[static_cast<std::size_t>(position)];
  }
  double allowed(double expected, double bound) const {
    return context.allowed.atol + context.allowed.rtol * std::abs(expected) + bound;
  }
  /// Error / allowed of one element; 0 where the values are equal, also NaN and infinities as measure() takes
  /// them; inf where nothing is allowed.
  double ratio(double actual_value, double expected, double bound) const;
};

/// A stretch of the pair, for which a model writes what it expects. `bound` holds that of each position; a
/// model that takes elements from elsewhere takes their bound, too.
struct ElementWindow {
  std::int64_t begin;
  std::span<const double> actual, reference;
  std::span<double> expected, bound;
};
using Model = std::function<void(const ElementWindow&)>;

/// What is left of the errors under a model.
struct Fit {
  double residual = std::numeric_limits<double>::infinity();  ///< largest error / allowed, of all elements
  double before = 0, after = 0;  ///< sum of squared errors of the elements over tolerance: without, with it
  std::int64_t exact = 0;        ///< elements that are equal to the expected value
};
/// Takes the model to every element; gives up at the first that it does not explain.
Fit verify(const FailingPair&, const Model&);

/// How easily an element over tolerance is explained by accident: the share of those pairs of such an element
/// and a place of the reference where actual = factor x reference within tolerance.
/// @param own_place  a true model explains each by one place, which is no accident and not counted
double chance(const FailingPair&, double factor = 1, bool own_place = true);
/// The same of `wanted`, one value for each of FailingPair::wrong, and factor x the elements of another
/// tensor.
/// @param within  share of the tolerance: what the explanation leaves, Fit::residual. Where it leaves far
/// less
///                than the tolerance, so must an accident.
double chance(const FailingPair&, std::span<const double> wanted, const TensorSource& other, double factor,
              double within);

/// Whether actual = reference + one number does for the elements over tolerance. A ramp that is shifted looks
/// like one that has an offset: nothing is said of its order then.
bool looks_offset(const FailingPair&);

/// Whether a fit is more than accident and slack: see diagnose().
/// @param parameters  bits that choose the model among those that were possible
/// @param explained   how many elements over tolerance it accounts for
bool convincing(const Fit&, double chance, double parameters, std::int64_t explained);

/// As diagnose() of the pair.
std::vector<Diagnosis> explain(const FailingPair&);

/// One function per family. Each appends what holds.
void explain_factor(const FailingPair&, std::vector<Diagnosis>&);
void explain_factor_of_some(const FailingPair&, std::vector<Diagnosis>&);
void explain_row_factors(const FailingPair&, std::vector<Diagnosis>&);
void explain_range(const FailingPair&, std::vector<Diagnosis>&);
void explain_precision(const FailingPair&, std::vector<Diagnosis>&);
void explain_order(const FailingPair&, std::vector<Diagnosis>&);
void explain_permuted(const FailingPair&, std::vector<Diagnosis>&);
void explain_rope(const FailingPair&, std::vector<Diagnosis>&);

}  // namespace assay
