#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/io/json.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// One line of an assay-dump's index.
/// @param file, name  where the bits lie: a dataset of an HDF5 file, or a tensor of a safetensors file
/// @param offset      of the bits in the file; journals of unfinished dumps have it
Json index_entry(const Record&, const std::string& file, const std::string& name,
                 std::optional<std::uint64_t> offset = std::nullopt);

/// The record of a line, all but where its bits lie; Record::has_bits says whether it has any. Throws Error
/// ("<where>: ...") if it is none.
Record parse_index_entry(const Json&, const std::string& where, int rank, const Mesh&);

Json json_numbers(const Shape&);
Json json_texts(const std::vector<std::string>&);

}  // namespace assay
