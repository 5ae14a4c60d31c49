#include "assay/golden/tensor_source.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace assay {

TensorSource::TensorSource(Tensor whole)
    : dtype_(whole.dtype()),
      shape_(whole.shape()),
      size_(whole.size()),
      whole_(std::make_shared<const Tensor>(std::move(whole))) {}

TensorSource::TensorSource(DType dtype, Shape shape, Fill fill)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      fill_(std::make_shared<const Fill>(std::move(fill))) {}

Tensor TensorSource::window(std::int64_t begin, std::int64_t count) const {
  const std::size_t size = size_of(dtype_), bytes = static_cast<std::size_t>(count) * size;
  if (whole_)
    return {dtype_, {count}, whole_->bytes().subspan(static_cast<std::size_t>(begin) * size, bytes), whole_};
  std::vector<std::byte> out(bytes);
  if (fill_) (*fill_)(begin, out);
  return {dtype_, {count}, std::move(out)};
}

double TensorSource::value(std::int64_t position) const {
  return window(position, 1).value(0);
}

Tensor TensorSource::whole() const {
  return whole_ ? *whole_ : window(0, size_).reshaped(shape_);
}

}  // namespace assay
