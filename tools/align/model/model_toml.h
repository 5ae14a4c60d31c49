#pragma once

#include <string>
#include <string_view>

#include "assay/align/model/model.h"

namespace assay::align {

/// @param where  the file, for messages
/// @throws Error  for text that is no TOML, an unknown key, a value of another kind or out of range
Model model_from_toml(std::string_view text, const std::string& where);
/// A model with other values: "moe.top_k=1,tied_embeddings=true".
Model changed(const Model&, std::string_view changes, const std::string& where);

}  // namespace assay::align
