#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/reveal_order.h"
#include "assay/operators/engine/golden.h"

namespace assay {

/// A kernel that adds up, as an operator: "sum" of x, "dot" of a and b, or "matmul" of a [M, K] and b [K, N].
struct SumKernel {
  const Operator* op = nullptr;
  KernelUnderQuestion asked;
  std::int64_t rows = 1, columns = 1;  ///< M and N of a matmul
  bool is_matmul = false;

  /// @throws Error  for another kind, and for extents below 1
  static SumKernel of(std::string_view kind, std::int64_t terms, DType, std::int64_t rows,
                      std::int64_t columns);

  /// The inputs by which it is asked: in a matmul all rows of a are alike, and all columns of b.
  std::vector<NamedTensor> inputs(const SumQuestion&) const;
  Shape output_shape() const;
  /// @throws Error  if it has another number of elements, or no floating dtype
  void expect_output(const Tensor&) const;
};

}  // namespace assay
