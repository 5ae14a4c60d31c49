#pragma once

#include <string_view>
#include <vector>

#include "assay/operators/engine/recorded.h"

/// What a model does to its logits before a loss over classes, told by their gradient.
namespace assay {

inline constexpr std::string_view logit_scales =
    "s of log(g_i / g_j) = s (logits_i - logits_j), for gradients of classes that are no target: as short a "
    "number as they allow, or the reciprocal of one (Cohere: 0.0625; Granite: 1/6, 1/8, 1/16)";
inline constexpr std::string_view softcaps =
    "c of the same with x = c tanh(logits / c), whose gradient is scaled by 1 - tanh^2 (Gemma 2: 30; "
    "NanoChat: 15)";

/// logit_scale or softcap of cross_entropy, the shortest numbers first. Empty where the gradient shows
/// neither.
/// @param logits    [.., V]
/// @param gradient  of the logits, up to a factor
std::vector<Candidate> fitted_logits(const Tensor& logits, const Tensor& gradient);

}  // namespace assay
