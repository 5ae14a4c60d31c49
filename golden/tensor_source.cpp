#include "assay/golden/tensor_source.h"

#include <algorithm>
#include <cstdlib>
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

TensorSource TensorSource::reshaped(const Shape& shape) const {
  if (!window_) return whole().reshaped(shape);
  TensorSource other = *this;
  other.shape_ = shape;
  return other;
}

namespace {

// The same elements with as few dimensions as can be: extents of 1 left out, those that follow each other in
// memory joined.
void join_extents(Shape& shape, Shape& strides) {
  Shape extents, steps;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (!extents.empty() && steps.back() == strides[d] * shape[d]) {
      extents.back() *= shape[d];
      steps.back() = strides[d];
    } else {
      extents.push_back(shape[d]);
      steps.push_back(strides[d]);
    }
  }
  shape = std::move(extents);
  strides = std::move(steps);
}

template <std::size_t size>
void copy_run(const std::byte* from, std::ptrdiff_t from_step, std::byte* to, std::ptrdiff_t to_step,
              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step, from + i * from_step, size);
}

// How elements a step apart in memory are copied.
auto run_copier(std::size_t size) {
  switch (size) {
    case 1:
      return &copy_run<1>;
    case 2:
      return &copy_run<2>;
    case 4:
      return &copy_run<4>;
    case 8:
      return &copy_run<8>;
    default:
      throw Error("elements have {} bytes; expected 1, 2, 4 or 8", size);
  }
}

// Elements with strides, of one dimension or more.
struct StridedElements {
  const std::byte* first;
  Shape extents, strides;
  std::ptrdiff_t size;
  decltype(run_copier(0)) copy;
  std::shared_ptr<const void> owner;

  void operator()(std::int64_t begin, std::span<std::byte> out) const {
    Shape index = unravel(begin, extents);
    const std::size_t last = extents.size() - 1;
    for (std::byte* to = out.data(); to < out.data() + out.size();) {
      const std::int64_t left = (out.data() + out.size() - to) / size;
      const std::int64_t run = std::min(left, extents[last] - index[last]);
      std::int64_t at = 0, rows = 1;
      for (std::size_t d = 0; d <= last; ++d) at += index[d] * strides[d];
      // Of a transposed array whole rows at once, column by column: neighbours in memory are read together.
      if (last > 0 && run == extents[last] && strides[last - 1] != 0 &&
          std::abs(strides[last - 1]) < std::abs(strides[last]))
        rows = std::min(left / run, extents[last - 1] - index[last - 1]);
      if (rows > 1) {
        for (std::int64_t column = 0; column < run; ++column)
          copy(first + (at + column * strides[last]) * size, strides[last - 1] * size, to + column * size,
               run * size, rows);
        index[last - 1] += rows - 1;
      } else {
        copy(first + at * size, strides[last] * size, to, size, run);
      }
      to += rows * run * size;
      index[last] += run;
      for (std::size_t d = last; d > 0 && index[d] == extents[d]; --d) {
        index[d] = 0;
        ++index[d - 1];
      }
    }
  }
};

}  // namespace

TensorSource strided_source(DType dtype, Shape shape, const std::byte* first, Shape strides,
                            std::shared_ptr<const void> owner) {
  if (strides.size() != shape.size()) {
    throw Error("array has {} strides for shape {}; expected one each", strides.size(), to_string(shape));
  }
  const std::int64_t count = element_count(shape);
  if (count == 0) return Tensor(dtype, std::move(shape));
  const auto size = static_cast<std::ptrdiff_t>(size_of(dtype));
  Shape extents = shape;
  join_extents(extents, strides);
  if (extents.empty() || strides == Shape{1}) {
    const std::span<const std::byte> in_place(first, static_cast<std::size_t>(count * size));
    return Tensor(dtype, std::move(shape), in_place, std::move(owner));
  }
  return {dtype, std::move(shape),
          TensorSource::Fill(StridedElements{first, std::move(extents), std::move(strides), size,
                                             run_copier(static_cast<std::size_t>(size)), std::move(owner)})};
}

}  // namespace assay
