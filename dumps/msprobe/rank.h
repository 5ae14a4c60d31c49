#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/msprobe/layout.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// In a rank's folder: the files of its tensors.
inline constexpr std::string_view msprobe_tensors = "dump_tensor_data";

/// Where the bits of a record are, in MsprobeContents::folders.
struct MsprobePlace {
  std::size_t folder = 0;
  std::string file;  ///< empty: only statistics or a checksum were recorded
};

/// The contents of the folders of ranks, beside the records themselves.
struct MsprobeContents {
  std::vector<std::filesystem::path> folders;
  std::vector<MsprobePlace> places;  ///< one per record
  Layouts layouts;
  std::set<RankGroup> groups;
  std::size_t jsons = 0;          ///< readable ones
  std::size_t recomputed = 0;     ///< recomputed calls
  std::size_t missing_files = 0;  ///< files that a JSON names and that are missing
  std::string first_missing;
};

/// Whether the folder holds a dump.json or a debug.json.
bool has_msprobe_json(const std::filesystem::path& folder);

/// Adds the tensors in the folder of a rank to the records of the dump, and unreadable parts to its left_out.
void read_msprobe_rank(const std::filesystem::path& folder, std::int64_t step, int rank, const OpenOptions&,
                       Dump&, MsprobeContents&);

}  // namespace assay
