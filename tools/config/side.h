#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "assay/config/batches.h"
#include "assay/config/source.h"
#include "assay/config/tokenizer.h"

namespace assay::config {

/// One of two configurations: a file, or all that is known of those in a folder. What a file is, its content
/// says.
struct Side {
  std::string path;
  std::vector<Source> sources;  ///< by Framework: whose defaults hold first
  std::optional<Tokenizer> tokenizer;
  std::optional<Batches> batches;
  std::vector<std::string> passed_over;  ///< files of the folder of no known kind

  /// "Megatron-LM arguments, Hugging Face config.json and a tokenizer".
  std::string text() const;
};

/// A folder's own files, not those of folders in it. Arrays of tokens are batches.npy and
/// batches.safetensors in a folder, and any array that is named itself.
/// @throws Error  for a file that is named and of no known kind, and a folder with none
Side open_side(const std::filesystem::path&);
/// Of several files and folders.
Side open_side(const std::vector<std::string>&);

}  // namespace assay::config
