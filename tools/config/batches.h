#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::config {

/// What the first batches of a run are made of: in each the samples in their order.
///
///     {"format": "assay-batches", "version": 1, "samples": [["3f..", "a0.."], ["77..", "12.."]]}
///
/// with the SHA-256 of each sample's tokens as int64, little-endian; or the tokens themselves: an array of
/// integers (.npy, or the only tensor of a .safetensors) of batches, samples and tokens, or of samples and
/// tokens; or an indexed dataset of Megatron-LM.
struct Batches {
  std::vector<std::vector<std::string>> samples;               ///< hashes
  std::vector<std::vector<std::vector<std::int64_t>>> tokens;  ///< of arrays
  std::string file;
};

/// With the hashes of its tokens.
Batches hashed(Batches);

/// How they part: empty if they do not.
std::string difference_of(const Batches&, const Batches&);
/// "8 batches of 4 samples".
std::string to_string(const Batches&);

}  // namespace assay::config
