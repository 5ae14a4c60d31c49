#pragma once

#include <string>
#include <string_view>

#include "assay/dumps/record/dump.h"

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

/// Until a dump is finished, its files have this behind their names, and beside each rank's .h5 lies a
/// journal: an index whose every line also has the offset of the tensor's bytes in the .h5. A line is written
/// when its tensor is; whatever else happens to the process then, the tensor can be read.
inline constexpr std::string_view unfinished_ending = ".unfinished";
inline constexpr std::string_view unfinished_index = ".jsonl.unfinished";
inline constexpr std::string_view unfinished_manifest = "manifest.json.unfinished";

}  // namespace assay
