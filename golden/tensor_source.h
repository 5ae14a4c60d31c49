#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "assay/golden/tensor.h"

namespace assay {

/// The elements of a tensor that need not lie in one place, in windows of C order: what it is made of may be
/// larger than memory. Copies are cheap.
class TensorSource {
 public:
  /// Writes the elements from `begin` on that `out` has room for. May be called by several threads at a time.
  using Fill = std::function<void(std::int64_t begin, std::span<std::byte> out)>;
  /// Elements [begin, begin + count) as a tensor of shape [count], in place where they lie so. May be called
  /// by several threads at a time.
  using Window = std::function<Tensor(std::int64_t begin, std::int64_t count)>;

  TensorSource() = default;
  TensorSource(Tensor whole);  // NOLINT: a tensor is the source of its own elements
  /// An array of another library (ArrayOf).
  template <Array E>
  TensorSource(E&& array)  // NOLINT: it has elements
      : TensorSource(ArrayOf<std::remove_cvref_t<E>>::source(std::forward<E>(array))) {}
  TensorSource(DType, Shape, Fill);
  TensorSource(DType, Shape, Window);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  /// Its elements lie in one place: any window, and the whole, costs nothing.
  bool lies_whole() const { return whole_ != nullptr; }

  /// Elements [begin, begin + count) as a tensor of shape [count]: in place where they lie so. Throws Error
  /// if what they are made of turns out to be damaged.
  Tensor window(std::int64_t begin, std::int64_t count) const;
  /// One element as float64.
  double value(std::int64_t position) const;
  /// All of it, at once.
  Tensor whole() const;
  /// The same elements under another shape of as many.
  TensorSource reshaped(const Shape&) const;
  /// f(window, begin) over all elements, in order, with windows that stay in the cache.
  template <class F>
  void for_each_window(F f) const {
    for (std::int64_t begin = 0; begin < size_; begin += window_elements)
      f(window(begin, std::min(window_elements, size_ - begin)), begin);
  }

 private:
  static constexpr std::int64_t window_elements = 1 << 16;

  DType dtype_ = DType::float32;
  Shape shape_ = {0};
  std::int64_t size_ = 0;
  std::shared_ptr<const Tensor> whole_;  ///< one of the two
  std::shared_ptr<const Window> window_;
};

/// The elements of a strided array in memory that `owner` keeps alive (null: the caller): in place where they
/// lie in C order, else gathered window by window.
/// @param first    of element [0, .., 0]
/// @param strides  in elements; 0 for a broadcast dimension, negative for a reversed one; of extents of 1 any
/// @throws Error   unless there is a stride for each extent
TensorSource strided_source(DType, Shape, const std::byte* first, Shape strides,
                            std::shared_ptr<const void> owner);

}  // namespace assay
