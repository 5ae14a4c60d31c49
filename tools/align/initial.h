#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/align/forward.h"

/// Weights and tokens for a replay that is given none: the same on every machine, and easily made elsewhere.
namespace assay {

/// Uniform in [-1, 1): splitmix64 (Vigna 2015, xoshiro.di.unimi.it/splitmix64.c), seeded with the FNV-1a hash
/// of the name.
std::vector<double> drawn(const std::string& name, std::int64_t count);

/// Float64. Norms are near 1, router biases small; matrices and embeddings have variance 1 / in and 1 / 3, so
/// that the values stay of size 1 from layer to layer.
Tensor initial_parameter(const std::string& name, const Shape&);

/// Tokens of the micro-batch with that number, and the targets that follow them: "tokens", "targets", and
/// rolled left by k, zeros behind, "tokens_k" and "targets_k".
Tensor initial_indices(const std::string& name, const Batch&, std::int64_t vocabulary,
                       std::int64_t number = 0);

}  // namespace assay
