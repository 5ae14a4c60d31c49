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

/// What the folders of ranks hold, beside the records themselves.
struct MsprobeContents {
  std::vector<std::filesystem::path> folders;
  std::vector<MsprobePlace> places;  ///< one per record
  Layouts layouts;
  std::set<RankGroup> groups;
  std::size_t jsons = 0;          ///< that could be read
  std::size_t recomputed = 0;     ///< calls
  std::size_t missing_files = 0;  ///< named by a JSON and not there
  std::string first_missing;
};

/// The folder holds a dump.json or a debug.json.
bool has_msprobe_json(const std::filesystem::path& folder);

/// Adds what a rank's folder holds to the dump's records, and what cannot be read to its left_out.
void read_msprobe_rank(const std::filesystem::path& folder, std::int64_t step, int rank, const OpenOptions&,
                       Dump&, MsprobeContents&);

}  // namespace assay
