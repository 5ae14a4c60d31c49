#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace assay {

/// Is told how many of all tensors are judged by what they were made of, and which one is next.
using JudgingProgress = std::function<void(std::size_t done, std::size_t total, const std::string& name)>;

}  // namespace assay
