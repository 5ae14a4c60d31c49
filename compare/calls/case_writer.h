#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"

namespace assay {

/// An operator case that is to be written (docs/design.md, "Operator case").
struct NewCase {
  const Operator* op = nullptr;
  std::string name;  ///< consists of letters, digits, '_', '.' and '-'
  Attributes attributes;
  std::vector<NamedTensor> inputs, outputs;
  /// False: case.json declares the outputs, and the program under test writes their files.
  bool with_outputs = false;
};

/// Writes case.json and one .npy file per tensor into a new or empty folder.
/// @throws Error  if the folder is not empty or cannot be written; no file is left then
void write_case(const NewCase&, const std::filesystem::path& folder);

/// The value as case.json has it: 1e-05, true, "mean", null, [2,3].
std::string attribute_text(const AttributeValue&);

/// Throws Error if the folder exists and is not empty.
void expect_new_folder(const std::filesystem::path&);

}  // namespace assay
