#pragma once

#include <vector>

#include "assay/operators/engine/matrix.h"

/// The singular value decomposition, and what follows from squares of its vectors.
namespace assay {

using Real = Matrix<double>;

/// X = U diag(s) V^T.
struct Directions {
  std::vector<double> values;  ///< s
  Real left, right;            ///< U^T, V^T: a row for each value
};

/// @param x  no more rows than columns
Directions directions_of(Real x);
/// sqrt(q_ij), q_ij = sum_kl u_ik^2 f_kl v_jl^2 for the factors f_kl of directions k and l; the last l stands
/// for all columns beyond the rows.
Real roots(const Real& factors, const Directions&);
/// The magnitudes of sum_k u_ik s_k v_jk, or the sums of the magnitudes.
Real along_directions(const std::vector<double>& s, const Directions&, bool of_magnitudes);
/// The largest magnitude.
double largest_magnitude(const std::vector<double>& values);

}  // namespace assay
