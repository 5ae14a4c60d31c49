#pragma once

#include <string>
#include <string_view>

#include "assay/align/model/model.h"

namespace assay::align {

/// A config.json of Hugging Face's deepseek_v3, qwen3_moe or mixtral, or of TeleChat3. Keys that say nothing
/// of the arithmetic of training are passed over; dropout, biases, sliding windows and other scalings of
/// positions, which a Model does not have, are refused.
/// @param where  the file, for messages
Model model_from_huggingface(std::string_view json, const std::string& where);

}  // namespace assay::align
