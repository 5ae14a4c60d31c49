#include "assay/golden/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "assay/golden/error.h"

namespace assay {

TensorSource::TensorSource(Tensor whole)
    : dtype_(whole.dtype()),
      shape_(whole.shape()),
      size_(whole.size()),
      whole_(std::make_shared<const Tensor>(std::move(whole))) {}

TensorSource::TensorSource(DType dtype, Shape shape, Window window)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      window_(std::make_shared<const Window>(std::move(window))) {}

TensorSource::TensorSource(DType dtype, Shape shape, Fill fill)
    : TensorSource(dtype, std::move(shape),
                   [dtype, fill = std::move(fill)](std::int64_t begin, std::int64_t count) -> Tensor {
                     const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
                     // Not zeroed: all is written.
                     const std::shared_ptr<std::byte[]> out(new std::byte[bytes]);
                     const std::span<std::byte> span(out.get(), bytes);
                     fill(begin, span);
                     return {dtype, {count}, span, out};
                   }) {}

Tensor TensorSource::window(std::int64_t begin, std::int64_t count) const {
  if (window_) return (*window_)(begin, count);
  if (!whole_) return {dtype_, {count}};
  const std::size_t size = size_of(dtype_);
  return {
      dtype_,
      {count},
      whole_->bytes().subspan(static_cast<std::size_t>(begin) * size, static_cast<std::size_t>(count) * size),
      whole_};
}

double TensorSource::value(std::int64_t position) const {
  return window(position, 1).value(0);
}

Tensor TensorSource::whole() const {
  return whole_ ? *whole_ : window(0, size_).reshaped(shape_);
}

TensorSource strided_source(DType dtype, Shape shape, const std::byte* first, Shape strides,
                            std::shared_ptr<const void> owner) {
  if (strides.size() != shape.size()) {
    throw Error("array has {} strides for shape {}; expected one each", strides.size(), to_string(shape));
  }
  return {dtype, shape,
          TensorSource::Fill([shape, first, strides = std::move(strides), owner = std::move(owner),
                              size = static_cast<std::ptrdiff_t>(size_of(dtype))](std::int64_t begin,
                                                                                  std::span<std::byte> out) {
            Shape index = unravel(begin, shape);
            std::ptrdiff_t at = 0;
            for (std::size_t d = 0; d < shape.size(); ++d) at += index[d] * strides[d];
            for (std::size_t written = 0; written < out.size(); written += static_cast<std::size_t>(size)) {
              std::memcpy(out.data() + written, first + at * size, static_cast<std::size_t>(size));
              for (std::size_t d = shape.size(); d-- > 0;) {
                at += strides[d];
                if (++index[d] < shape[d]) break;
                at -= strides[d] * shape[d];
                index[d] = 0;
              }
            }
          })};
}

}  // namespace assay
