#pragma once

#include <string>
#include <string_view>

#include "assay/dumps/record/dump.h"

namespace assay {

/// The content of manifest.json.
struct Manifest {
  int world_size = 1;
  Mesh mesh;
  std::string producer;  ///< the JSON text of an object, or empty
};

/// Parses the manifest of an assay-dump, version 1. Throws Error ("<where>: ...") for any other text.
Manifest parse_manifest(std::string_view text, std::string_view where);

/// Returns "rank00007", the common beginning of the files of a rank: .h5, or .jsonl and .safetensors.
std::string rank_stem(int rank);

/// The endings of files in an unfinished dump. Beside the .h5 of each rank lies a journal: an index with the
/// offset of the bytes of each tensor in the .h5. A line is written as soon as its tensor is, so that the
/// tensor can be read if the process dies.
inline constexpr std::string_view unfinished_ending = ".unfinished";
inline constexpr std::string_view unfinished_index = ".jsonl.unfinished";
inline constexpr std::string_view unfinished_manifest = "manifest.json.unfinished";

}  // namespace assay
