#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/operators/engine/golden.h"

namespace assay {

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
