#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/align/model/batch.h"

/// Weights and tokens for a replay that is given none: the same on every machine, and easily made elsewhere.
namespace assay::align {

/// Uniform in [-1, 1): splitmix64 (Vigna 2015, xoshiro.di.unimi.it/splitmix64.c), seeded with the FNV-1a hash
/// of the name.
std::vector<double> drawn(const std::string& name, std::int64_t count);

/// Float64. Norms are near 1, router biases small; matrices and embeddings have variance 1 / in and 1 / 3, so
/// that the values stay of size 1 from layer to layer.
/// @param seed  others draw other numbers
Tensor initial_parameter(const std::string& name, const Shape&, std::int64_t seed = 0);

/// The sequences of the micro-batch with that number. no_target stands for what begins a sequence, a prompt:
/// of each a drawn length, up to batch.prompt of it.
Sequences initial_sequences(const Batch&, std::int64_t vocabulary, std::int64_t number = 0,
                            std::int64_t seed = 0);

/// "tokens" and "targets"; rolled left by k, for multi-token prediction, "tokens_k" with zeros behind and
/// "targets_k" with no_target behind. "valid_targets", "valid_targets_k": how many of them are not no_target,
/// a scalar.
Tensor indices_of(const std::string& name, const Sequences&, const Batch&);

inline Tensor initial_indices(const std::string& name, const Batch& batch, std::int64_t vocabulary,
                              std::int64_t number = 0, std::int64_t seed = 0) {
  return indices_of(name, initial_sequences(batch, vocabulary, number, seed), batch);
}

}  // namespace assay::align
