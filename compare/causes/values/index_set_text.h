#pragma once

#include <span>
#include <string>
#include <vector>

#include "assay/compare/result/diagnosis.h"

namespace assay {

/// A set of indices in words, and the bits that choose it among all sets with an equally short description.
struct IndexSetText {
  std::string text;
  double bits;
};
/// "rows 48..63", "the last 5 columns", "every 8th row (index = 3 mod 8)", "rows 0..31 (= 0 of 2 by tp)".
/// @param one  the name of one member: "row", "index"
IndexSetText describe_index_set(const std::vector<bool>& holds, const std::string& one,
                                std::span<const KnownSize>);

}  // namespace assay
