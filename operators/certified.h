#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/operators/golden.h"

namespace assay {

/// How many elements are known to be correctly rounded to float32, and how. `exact`: no operation rounded
/// anything before the last. `certified`: all of the float64 result's error interval rounds to one float32.
/// `repaired`: all of the interval at 50 digits does. `unproved`: not even that; a tie that is none in exact
/// arithmetic would be rounded wrongly.
struct Proof {
  std::int64_t exact = 0, certified = 0, repaired = 0, unproved = 0;
};

struct CertifiedTensor {
  NamedTensor value;  ///< float32; Role::output_index int64
  Proof proof;
};

/// All outputs, as compute_golden, each element the float32 nearest to the real result, ties to even. That is
/// unique, so it is the same on every machine.
/// @throws Error  as compute_golden
std::vector<CertifiedTensor> compute_certified(const Operator&, std::span<const NamedTensor> inputs,
                                               const Attributes&);

}  // namespace assay
