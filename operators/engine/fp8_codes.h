#pragma once

#include "assay/operators/engine/golden.h"

/// float8_e4m3fn as DeepSeek-V3's matmuls take it (arXiv:2412.19437 sec. 3.3.2).
namespace assay {

/// Elements along the summed dimension that share a scale.
inline constexpr std::int64_t fp8_block = 128;

/// What a matmul takes of [rows, K]: codes, their scales, and what both stand for.
struct Fp8Codes {
  Tensor code, scale, dequantized;  ///< float32
};
/// A scale for each box of rows x columns.
Fp8Codes quantize_fp8(const Tensor&, std::int64_t rows, std::int64_t columns);

}  // namespace assay
