#pragma once

#include "assay/golden/arithmetic.h"

namespace assay {

/// above() where x > 0 (NaN is not), below() elsewhere, of a function that does not jump at 0: in Bound with
/// the larger error of both where x may be on either side.
template <class T, class F, class G>
T by_side(const T& x, F above, G below) {
  const bool is_above = x > T(0);
  if constexpr (std::is_same_v<T, Bound>) {
    if (x.error > 0 && std::abs(x.value) <= x.error) {
      const T one = above(), other = below();
      return settled(is_above ? one.value : other.value, worse(one.error, other.error));
    }
  }
  return is_above ? above() : below();
}

}  // namespace assay
