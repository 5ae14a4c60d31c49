#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"

namespace assay {

/// An operator case to be written (design 3.2).
struct NewCase {
  const Operator* op = nullptr;
  std::string name;  ///< letters, digits, '_', '.' and '-'
  Attributes attributes;
  std::vector<NamedTensor> inputs, outputs;
  /// Else the outputs are only declared: whoever computes them writes the files.
  bool with_outputs = false;
};

/// Writes case.json and a .npy file for each tensor into a folder that is new or empty.
/// @throws Error  if it is not, or cannot be written; then nothing stays
void write_case(const NewCase&, const std::filesystem::path& folder);

/// Throws Error unless the folder is not there yet or empty.
void expect_new_folder(const std::filesystem::path&);

}  // namespace assay
