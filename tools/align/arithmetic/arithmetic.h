#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/align/arithmetic/reduce_order.h"
#include "assay/operators/engine/golden.h"

namespace assay::align {

enum class Precision : std::uint8_t { fp64, fp32, exact, bf16, fp16, fp8 };
std::string_view name(Precision);
/// Throws Error that lists them.
Precision parse_precision(std::string_view);

/// In what arithmetic a replay computes. What an operator gives is open: a sum may go on with what other
/// ranks, micro-batches or uses of a tensor add to it; it is closed, rounded to a tensor of the storage
/// dtype, where it is used.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  virtual DType storage() const = 0;
  /// All outputs, open; indices as they are.
  /// @param module  what the call belongs to; empty: the optimizer
  virtual std::vector<NamedTensor> compute(const std::string& module, const Operator&,
                                           std::span<const NamedTensor>, const Attributes&) const = 0;
  /// Of open tensors of one shape.
  virtual Tensor add(std::span<const Tensor> open, ReduceOrder) const = 0;
  virtual Tensor close(const Tensor& open) const = 0;
  /// A closed tensor as an open one.
  virtual Tensor open(const Tensor& closed) const = 0;
  /// Dimensions that an open tensor has before its shape.
  virtual std::size_t leading() const = 0;

  /// The first output, closed; of no module.
  Tensor result(std::string_view op, const std::vector<NamedTensor>& inputs, const Attributes& = {}) const;
};

/// fp64, fp32: the golden operators' levels, open is closed. exact: float32 tensors, every sum exact whatever
/// the order of its terms, rounded once when it is closed. bf16, fp16, fp8: mixed_precision.h.
std::shared_ptr<const Arithmetic> arithmetic(Precision, RoundSum = RoundSum::each);

}  // namespace assay::align
