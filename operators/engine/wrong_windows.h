#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "assay/operators/engine/recorded.h"

/// Masks that attention may have by mistake: sliding windows, and one that is off by one.
namespace assay {

inline constexpr std::string_view wrong_windows =
    "[l, -1]: every l below 64, then 2^k - 1 and 2^k; causal, and one key behind the query";

/// Where q is [.., L, D].
std::vector<Candidate> windows_by_heads(const Attributes& right, std::span<const InputShape>);
/// Where v, kv or qkv is [B, L, ..].
std::vector<Candidate> windows_by_tokens(const Attributes& right, std::span<const InputShape>);

}  // namespace assay
