#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/config/batches.h"
#include "assay/config/source.h"
#include "assay/config/tokenizer.h"
#include "assay/dumps/io/json.h"

/// Files of one form each, as flat lists of entries. Files are not trusted: sizes, depth, keys that stand
/// twice and anchors that hold themselves are Errors ("<where>: ..").
namespace assay::config {

/// More than any configuration has; anchors of YAML can make a small file a large one.
inline constexpr std::size_t most_entries = 100'000, most_depth = 64;
inline constexpr std::size_t most_bytes = 64 << 20;

/// @param where  the file's name, for places and messages
std::vector<Entry> read_json(const Json&, const std::string& where);
std::vector<Entry> read_yaml(std::string_view text, const std::string& where);
std::vector<Entry> read_toml(std::string_view text, const std::string& where);

/// Options of a command and the variables that are exported to it, from a shell script or a list of
/// arguments. Nothing is run: variables are replaced where the script sets them to a text.
struct Script {
  std::vector<Entry> options;      ///< "norm_epsilon"; of an option that stands twice the last one
  std::vector<Entry> environment;  ///< "NCCL_ALGO"
};
Script read_script(std::string_view text, const std::string& where);

/// The list that Megatron-LM prints of its arguments, also from the middle of a log: "  lr .... 0.0001".
std::vector<Entry> read_printed(std::string_view text, const std::string& where);
bool has_printed(std::string_view text);

/// An option of Megatron-LM as its variable: "add_bias_linear" and false of "disable-bias-linear".
Entry variable_of(std::string_view option, std::optional<std::string> value, std::string place);

/// Whether a file of this name and content belongs to a tokenizer.
bool is_of_tokenizer(std::string_view name, const Json&);
/// Adds what a file says. @throws Error for ids that are none and tokens with two ids
void add_to_tokenizer(Tokenizer&, std::string_view name, const Json&, const std::string& where);
void add_merges(Tokenizer&, std::string_view text);

bool is_batches(const Json&);
Batches batches_of(const Json&, const std::string& where);
/// The first sequences of an indexed dataset of Megatron-LM, x.idx beside x.bin: one batch of them.
Batches read_indexed(const std::filesystem::path& index);
/// @param array  of integers: .npy, or the only tensor of a .safetensors
Batches read_batches(const std::filesystem::path& array);

}  // namespace assay::config
