#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/dump.h"
#include "assay/dumps/json.h"

namespace assay {

/// One line of an assay-dump's index.
/// @param file, name  where the bits lie: a dataset of an HDF5 file, or a tensor of a safetensors file
/// @param offset      of the bits in the file; journals of unfinished dumps have it
Json index_entry(const Record&, const std::string& file, const std::string& name,
                 std::optional<std::uint64_t> offset = std::nullopt);

/// The record of a line, all but where its bits lie. Throws Error ("<where>: ...") if it is none.
Record parse_index_entry(const Json&, const std::string& where, int rank, const Mesh&);

/// No number in an index is larger: every producer's JSON library writes up to 2^53 exactly.
inline constexpr std::int64_t max_index_number = std::int64_t{1} << 53;
/// A word that may stand under "slot".
bool is_slot(std::string_view);

Json json_numbers(const Shape&);
Json json_texts(const std::vector<std::string>&);

}  // namespace assay
