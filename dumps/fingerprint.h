#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// What is remembered of a run to know it again: small, for a repository, a line for each tensor.
struct Fingerprint {
  /// A scalar that tells how the training goes, for people to read; judged it is as a tensor.
  struct Loss {
    std::string name;  ///< to_string(Identity)
    DType dtype = DType::float32;
    double value = 0;
  };
  struct Entry {
    Identity id;
    std::string op;
    std::optional<std::int64_t> count;
    DType dtype = DType::float32;
    Shape shape;
    std::string sha256;              ///< of the little-endian elements in C order, merged
    double abs_sum = 0;              ///< exact, rounded once
    std::optional<double> l2;        ///< nothing where its squares leave the range of float64
    std::optional<double> sum = {};  ///< of a scalar: its value
  };
  std::string only;      ///< of which tensors; empty: all
  std::string producer;  ///< JSON text of the dump's, or empty
  std::string reason;    ///< why these numbers are right
  std::vector<Loss> losses;
  std::vector<Entry> tensors;
};

/// Losses and norms of gradients: scalars in the slot "loss", and those of files that have nothing but names.
bool is_loss(const Identity&, const Shape&);
/// Of all of them, or those whose name fits the glob.
std::vector<Fingerprint::Loss> losses_of(const Dump&, const std::string& only);

/// @throws Error  for a tensor that cannot be read, whose copies differ, that holds NaN or Inf or no values,
/// and where no tensor has that name: nothing of that could be trusted later
Fingerprint fingerprint_of(const Dump&, const std::string& only);

/// The same text for the same run, on every machine: keys sorted, tensors in execution order, no date.
std::string to_text(const Fingerprint&);

/// @throws Error  that names file, key, what was found and expected
Fingerprint read_fingerprint(const std::filesystem::path&);
bool is_fingerprint(const std::filesystem::path&);

}  // namespace assay
