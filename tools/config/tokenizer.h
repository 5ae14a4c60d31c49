#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/config/value.h"

namespace assay::config {

/// The vocabulary of a folder: tokenizer.json, or vocab.json with merges.txt; and what tokenizer_config.json,
/// special_tokens_map.json and added_tokens.json add.
struct Tokenizer {
  std::map<std::string, std::int64_t> ids;
  std::vector<std::string> merges;             ///< in their order, which decides how text is cut
  std::map<std::string, std::string> special;  ///< "eos_token": "</s>"
  std::map<std::string, Value> settings;       ///< "add_bos_token", and the parts of tokenizer.json as text
  std::string file;                            ///< that the ids stand in
};

/// A difference of two tokenizers.
struct TokenizerDifference {
  std::string key;  ///< "tokenizer.ids"
  std::string a, b;
  std::string does;
  bool one_sided = false;  ///< the files of one side do not say it
};
struct TokenizerComparison {
  std::vector<TokenizerDifference> differences;
  std::size_t equal = 0;  ///< keys
};
TokenizerComparison compare_tokenizers(const Tokenizer&, const Tokenizer&);

}  // namespace assay::config
