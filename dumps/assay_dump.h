#pragma once

#include <string>
#include <string_view>

#include "assay/dumps/dump.h"

namespace assay {

/// What manifest.json says.
struct Manifest {
  int world_size = 1;
  Mesh mesh;
  std::string producer;  ///< JSON text of an object, or empty
};

/// Throws Error ("<where>: ...") unless `text` is the manifest of an assay-dump, version 1.
Manifest parse_manifest(std::string_view text, std::string_view where);

/// "rank00007": the files of a rank are called so, with .h5, or with .jsonl and .safetensors.
std::string rank_stem(int rank);

}  // namespace assay
