#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "assay/operators/engine/golden.h"

namespace assay {

/// An output to be judged, as case.json declares it.
struct CaseOutput {
  std::string name;
  std::string file;
  DType dtype = DType::float64;
  Shape shape;
};

/// One call of an operator and the outputs that a kernel computed: a folder with case.json and .npy files
/// (docs/design.md, "Operator case").
struct Case {
  std::filesystem::path folder;
  std::string name;  ///< "rms_norm/n6_c40"
  const Operator* op = nullptr;
  Attributes attributes;            ///< as given; a nested object is flattened: "yarn.factor"
  std::vector<NamedTensor> inputs;  ///< dense: strided and broadcast inputs are gathered
  std::vector<CaseOutput> outputs;
  std::string json;  ///< the text of case.json

  /// Reads one output. Throws Error if its file is missing or does not hold the declared array.
  Tensor read(const CaseOutput&) const;
};

/// Reads case.json and the inputs. Throws Error for an unreadable file, an unknown operator or an unknown
/// attribute; the message names the file, the found and the expected text.
Case load_case(const std::filesystem::path& folder);

/// Returns the folder itself if it holds a case.json, else every folder below it that does, sorted by name.
/// Throws Error if there is none.
std::vector<std::filesystem::path> find_cases(const std::filesystem::path&);

}  // namespace assay
