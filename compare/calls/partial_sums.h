#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/operators/engine/golden.h"

namespace assay {

/// How the ranks have cut one dimension of a tensor: each part the stretches [first, last) of it that a rank
/// holds. Fewer than two parts: it was not cut.
using Parts = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;
std::vector<Parts> parts_of(const Dump&, const LogicalTensor&);

/// An input of a call, and how each of its dimensions was cut among ranks.
struct CutInput {
  std::string name;
  std::vector<Parts> dims;
};

/// The sum behind a result that several ranks share, each with the terms of its part.
struct SharedSum {
  std::string input;  ///< the terms are linear in this one
  std::size_t dim = 0;
  Parts parts;
  /// False: there is no such input, and only the number of parts is known.
  bool is_linear = true;
};

/// The sums behind `output` along dimensions that it does not have and that ranks have cut.
std::vector<SharedSum> shared_sums(const Operator&, const std::string& output, const std::vector<CutInput>&);

/// The tensor with zeros outside of the part.
Tensor only_part(const Tensor&, std::size_t dim, const Parts::value_type& part);

}  // namespace assay
