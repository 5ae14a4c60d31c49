#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

using Shape = std::vector<std::int64_t>;

/// Product of the extents; 1 for a scalar. Throws Error if an extent is negative or the product exceeds
/// int64.
std::int64_t element_count(const Shape&);
/// "[4, 512]", "[]".
std::string to_string(const Shape&);
/// C-order index of a flat position: "[3, 17]" for position 3*C+17.
Shape unravel(std::int64_t position, const Shape&);

class Tensor;
class TensorSource;

/// How the arrays of another library are read: whoever specialises it makes them acceptable wherever a Tensor
/// or a TensorSource is expected. golden/xtensor.h does so for xtensor's expressions.
/// It has two functions. `static Tensor tensor(E&&)` gives a dense tensor: the array's own memory where it
/// lies in C order, else packed once. `static TensorSource source(E&&)` reads the array's own memory in any
/// layout, window by window. E is deduced as a forwarding reference: an lvalue must outlive both and stay as
/// it is; an rvalue is kept.
template <class E>
struct ArrayOf;
template <class E>
concept Array = requires(E&& array) {
  ArrayOf<std::remove_cvref_t<E>>::tensor(std::forward<E>(array));
};

/// An n-dimensional array of one dtype: dense, C order, little-endian. The bytes are shared and never written
/// after construction, so copies are cheap and a tensor may lie in a mapped file.
class Tensor {
 public:
  Tensor() = default;
  /// Zeros.
  Tensor(DType, Shape);
  /// Takes bytes that `owner` keeps alive. Throws Error if their number does not fit dtype and shape.
  Tensor(DType, Shape, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  /// Owns a copy of the bytes.
  Tensor(DType, Shape, std::vector<std::byte> bytes);
  /// Owns a copy of the elements: float32 or float64.
  Tensor(Shape, std::span<const float> elements);
  Tensor(Shape, std::span<const double> elements);
  /// float64 values rounded to nearest even into dtype.
  static Tensor from_values(DType, Shape, std::span<const double> values);
  static Tensor from_indices(Shape, std::span<const std::int64_t> values);
  /// An array of another library (ArrayOf).
  template <Array E>
  Tensor(E&& array)  // NOLINT: it is a tensor
      : Tensor(ArrayOf<std::remove_cvref_t<E>>::tensor(std::forward<E>(array))) {}

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// One element as float64.
  double value(std::int64_t position) const;
  /// All elements as float64, or as int64 (integer dtypes only, else Error).
  std::vector<double> values() const;
  std::vector<std::int64_t> indices() const;
  /// The same bytes under another shape of equal size.
  Tensor reshaped(Shape) const;

 private:
  DType dtype_ = DType::float32;
  Shape shape_ = {0};
  std::int64_t size_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// The elements of a strided view, gathered into a dense tensor.
/// @param strides, offset  in elements of `base`; a stride may be 0 (broadcast) or negative
/// @throws Error if the view reaches outside `base`
Tensor gather_view(const Tensor& base, const Shape& shape, const Shape& strides, std::int64_t offset);

}  // namespace assay
