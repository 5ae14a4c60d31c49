#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "assay/operators/engine/golden.h"

namespace assay {

/// An output that a case wants judged, as its case.json declares it.
struct CaseOutput {
  std::string name;
  std::string file;
  DType dtype = DType::float64;
  Shape shape;
};

/// One call of an operator with the outputs that somebody computed: a folder with case.json and .npy files
/// (design 3.2).
struct Case {
  std::filesystem::path folder;
  std::string name;  ///< "rms_norm/n6_c40"
  const Operator* op = nullptr;
  Attributes attributes;            ///< as given; nested objects flattened: "yarn.factor"
  std::vector<NamedTensor> inputs;  ///< views gathered
  std::vector<CaseOutput> outputs;
  std::string json;  ///< the text of case.json

  /// The bytes of one of the outputs. Throws Error if the file is missing or not what case.json declares.
  Tensor read(const CaseOutput&) const;
};

/// Throws Error that names the file and what was found and expected; unknown operators and attributes
/// included.
Case load_case(const std::filesystem::path& folder);

/// The folder itself if it holds a case.json, else every folder below that does, in order of their names.
/// Throws Error if there is none.
std::vector<std::filesystem::path> find_cases(const std::filesystem::path&);

}  // namespace assay
