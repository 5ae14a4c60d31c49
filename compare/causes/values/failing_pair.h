#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "assay/compare/causes/values/diagnosis.h"

namespace assay {

/// Some elements of a pair, at ascending positions.
struct Sample {
  std::vector<std::int64_t> at;
  std::vector<double> actual, reference;
};

/// A failing pair, and the numbers that all explanations share.
struct FailingPair {
  TensorSource actual, reference;
  DiagnosisContext context;
  std::int64_t over = 0;         ///< elements over tolerance
  std::int64_t over_finite = 0;  ///< of them, finite on the actual side: a NaN is like any other
  bool finite = true;            ///< all elements of both sides are finite
  std::int64_t zeros = 0;        ///< zeros of actual among the passing elements
  double largest_actual = 0;     ///< over the finite elements
  double square_gap = 0;         ///< |sum a^2 - sum r^2|
  double square_slack = 0;       ///< the gap that the tolerances alone can make
  Sample wrong;                  ///< up to 4096 of the elements over tolerance, evenly taken
  Sample spread;                 ///< up to 4096 of all elements, evenly taken

  FailingPair(const TensorSource& actual, const TensorSource& reference, const DiagnosisContext&);

  double bound(std::int64_t position) const {
    return context.allowed.bound.empty() ? 0 : context.allowed.bound[static_cast<std::size_t>(position)];
  }
  double allowed(double expected, double bound) const {
    return context.allowed.atol + context.allowed.rtol * std::abs(expected) + bound;
  }
  /// Error / allowed of one element. 0 for equal values (with NaN and infinities as measure() treats them);
  /// infinite if no error is allowed.
  double ratio(double actual_value, double expected, double bound) const;
};

/// Relative, of a value that is stored; integers are stored as they are.
inline double rounding_of(DType dtype) {
  return is_float(dtype) ? unit_roundoff(dtype) : 0;
}

/// A stretch of the pair. A model writes the expected values of its elements. `bound` holds the bound of each
/// position; a model that takes elements from elsewhere takes their bounds too.
struct ElementWindow {
  std::int64_t begin;
  std::span<const double> actual, reference;
  std::span<double> expected, bound;
};
using Model = std::function<void(const ElementWindow&)>;

/// The errors that a model leaves.
struct Fit {
  double residual = std::numeric_limits<double>::infinity();  ///< largest error / allowed, of all elements
  double before = 0,
         after = 0;  ///< squared errors of the elements over tolerance, summed: without and with the model
  std::int64_t exact = 0;  ///< elements equal to the expected value
};
/// Applies the model to every element, and stops at the first one that it does not explain.
Fit verify(const FailingPair&, const Model&);

/// Returns the probability that an element over tolerance is explained by accident: the share of pairs of
/// such an element and a place of the reference with actual = factor x reference within tolerance.
/// @param own_place  a true model explains each element by one place, which is no accident and does not count
double chance(const FailingPair&, double factor = 1, bool own_place = true);
/// Returns the same probability for `wanted`, one value per entry of FailingPair::wrong, and factor x the
/// elements of another tensor.
/// @param within  the share of the tolerance that the explanation needs (Fit::residual): an accident must be
///                as near
double chance(const FailingPair&, std::span<const double> wanted, const TensorSource& other, double factor,
              double within);

/// Returns whether actual = reference + a constant explains the elements over tolerance. A shifted ramp looks
/// like a ramp with an offset; its order is not diagnosed then.
bool looks_offset(const FailingPair&);

/// Returns whether a fit is more than accident and slack: see diagnose().
/// @param parameters  bits that choose the model among the possible ones
/// @param explained   the number of elements over tolerance that it explains
bool convincing(const Fit&, double chance, double parameters, std::int64_t explained);

/// Returns the bits that show a fit of the sample's errors to be no accident: an error e that is left within
/// what is allowed, a, is so by accident once in e / a, and not more seldom than values of the pair meet.
double evidence(const FailingPair&);

/// Returns the diagnoses of the pair, as diagnose() does.
std::vector<Diagnosis> explain(const FailingPair&);

/// One function per family of explanations. Each appends the explanations that hold.
void explain_bit(const FailingPair&, std::vector<Diagnosis>&);
void explain_factor(const FailingPair&, std::vector<Diagnosis>&);
void explain_factor_of_some(const FailingPair&, std::vector<Diagnosis>&);
void explain_row_factors(const FailingPair&, std::vector<Diagnosis>&);
void explain_range(const FailingPair&, std::vector<Diagnosis>&);
void explain_precision(const FailingPair&, std::vector<Diagnosis>&);
void explain_order(const FailingPair&, std::vector<Diagnosis>&);
void explain_permuted(const FailingPair&, std::vector<Diagnosis>&);
void explain_added_constant(const FailingPair&, std::vector<Diagnosis>&);
void explain_added_column(const FailingPair&, std::vector<Diagnosis>&);
void explain_sum_of_pieces(const FailingPair&, std::vector<Diagnosis>&);
void explain_rope(const FailingPair&, std::vector<Diagnosis>&);

}  // namespace assay
