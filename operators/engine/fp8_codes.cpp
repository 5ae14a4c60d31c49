#include "assay/operators/engine/fp8_codes.h"

namespace assay {

Fp8Codes quantize_fp8(const Tensor& t, std::int64_t rows, std::int64_t columns) {
  // The scale of a block of zeros is the smallest normal number of float32; no other block has a floor, as
  // gradients are far below the 1e-4 of kernels for activations (TransformerEngine: amax_epsilon 0).
  constexpr double amax_floor = 448 * 0x1p-126;
  const auto results =
      compute_golden(find_operator("quantize_fp8_block"), std::vector<NamedTensor>{{"x", t}},
                     {{"block", std::vector<double>{static_cast<double>(rows), static_cast<double>(columns)}},
                      {"amax_floor", amax_floor}},
                     Level::report);
  return {output_named(results, "code"), output_named(results, "scale"),
          output_named(results, "dequantized")};
}

}  // namespace assay
