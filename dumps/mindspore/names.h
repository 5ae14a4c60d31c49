#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// "Conv2D.Conv2D-op12.0.0.1623124369613540.output.0.DefaultFormat.float16.npy": one tensor of one kernel.
/// Older versions do not name the dtype.
struct KernelName {
  std::string type, op;
  std::uint64_t timestamp = 0;
  bool is_input = false;
  std::int64_t slot = 0;
  std::optional<DType> dtype;
};
std::optional<KernelName> parse_kernel_name(std::string_view file);

/// "Conv2D.Conv2D-op12.0.0.1623124369613540": CANN's protobuf of all tensors of one kernel.
bool is_kernel_protobuf(std::string_view file);

/// A row of statistic.csv.
struct KernelStatistics {
  KernelName name;
  Shape shape;
  std::optional<Statistics> statistics;
  std::string checksum;
};
/// The rows of a statistic.csv. Unreadable rows and their errors become one sentence in `left_out`.
std::vector<KernelStatistics> parse_statistics(std::string_view text, std::string_view where,
                                               std::vector<std::string>& left_out);
/// "Op Type,Op Name,..": the beginning of a statistic.csv.
bool is_statistics_header(std::string_view text);

/// mapping.csv: the long names of tensors, by the short file names that replace them.
std::map<std::string, std::string> parse_mapping(std::string_view text);

/// The place of a folder in the tree: rank_{rank}/{net}/{graph}/{iteration}, or with the graph engine of CANN
/// {step}/{time}/{device}/{model}/{model id}/{iteration}; either may have constants/ below.
struct KernelFolder {
  std::int64_t step = 0;
  int rank = 0;
  std::string graph;  ///< "net/0"; empty if the tree is none of these
  bool is_constants = false, rank_is_device = false;
};
KernelFolder parse_kernel_folder(const std::filesystem::path& absolute);

}  // namespace assay
