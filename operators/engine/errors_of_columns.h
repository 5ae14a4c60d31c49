#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "assay/golden/arithmetic.h"

namespace assay {

/// Errors of a matrix [D, V] that each token moves by a linear map of its columns. Element by element the
/// errors of the delta rule's I - beta k k^T grow as the map of magnitudes does, twice a token, where the map
/// itself makes no column longer: |e'| <= |map| |e| + |what the step adds|, norms of columns. Each element
/// has the smaller of both bounds.
template <class T>
class ErrorsOfColumns {
 public:
  ErrorsOfColumns(const std::vector<T>& matrix, std::int64_t V) : norms_(static_cast<std::size_t>(V), 0) {
    if constexpr (std::is_same_v<T, Bound>) norms_ = norms_of(matrix);
  }
  /// @param move    makes the next matrix of this one, each column of its own
  /// @param growth  the norm of the map as a device may have it
  template <class F>
  std::vector<T> step(const std::vector<T>& matrix, F move, [[maybe_unused]] double growth) {
    std::vector<T> next = move(matrix);
    if constexpr (std::is_same_v<T, Bound>) {
      std::vector<Bound> exact = matrix;
      for (Bound& x : exact) x.error = 0;
      const std::vector<double> added = norms_of(move(exact));
      for (std::size_t c = 0; c < norms_.size(); ++c) norms_[c] = growth * norms_[c] + added[c];
      for (std::size_t i = 0; i < next.size(); ++i)
        next[i].error = std::min(next[i].error, norms_[i % norms_.size()]);  // NaN remains
    }
    return next;
  }

 private:
  std::vector<double> norms_of(const std::vector<Bound>& matrix) const {
    std::vector<double> norms(norms_.size(), 0);
    for (std::size_t i = 0; i < matrix.size(); ++i)
      norms[i % norms.size()] += matrix[i].error * matrix[i].error;
    for (double& n : norms) n = std::sqrt(n);
    return norms;
  }

  std::vector<double> norms_;
};

}  // namespace assay
