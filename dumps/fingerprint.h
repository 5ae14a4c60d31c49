#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// A fingerprint of a run, by which the run is recognised later: one line per tensor, small enough for a
/// repository.
struct Fingerprint {
  /// A scalar that shows the progress of the training, for people. It is judged like any tensor.
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
    /// As Record::checksum has it: of 64 bits ("fingerprint:..", golden/sketch.h); "sha256:.." of the merged
    /// little-endian elements in C order in files of version 1.
    std::string checksum;
    std::optional<double> abs_sum;   ///< exact, rounded once; nothing of a dump of sketches
    std::optional<double> l2;        ///< nothing if the squares leave the range of float64
    std::optional<double> sum = {};  ///< the value of a scalar
  };
  std::string only;      ///< glob over tensor names; empty: all
  std::string producer;  ///< JSON text of the dump's producer, or empty
  std::string reason;    ///< why these numbers are right
  std::vector<Loss> losses;
  std::vector<Entry> tensors;
};

/// Whether a tensor is a loss or a norm of gradients: a scalar in the slot "loss", or one in a file that has
/// nothing but names.
bool is_loss(const Identity&, const Shape&);
/// Returns the losses of a dump whose names match the glob; empty: all.
std::vector<Fingerprint::Loss> losses_of(const Dump&, const std::string& only);

/// Computes the fingerprint of a dump.
/// @throws Error  for a tensor that cannot be read, has different copies, holds NaN or Inf or has no values,
///                and if no tensor has that name: such a fingerprint could not be trusted later
Fingerprint fingerprint_of(const Dump&, const std::string& only);

/// Returns the same text for the same run on every machine: sorted keys, tensors in execution order, no date.
std::string to_text(const Fingerprint&);

/// Reads a fingerprint file.
/// @throws Error  that names the file, the key, the found and the expected value
Fingerprint read_fingerprint(const std::filesystem::path&);
bool is_fingerprint(const std::filesystem::path&);

}  // namespace assay
