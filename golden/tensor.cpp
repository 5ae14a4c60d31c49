#include "assay/golden/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"

namespace assay {

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  bool is_empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw Error("shape {} has a negative extent", to_string(shape));
    is_empty = is_empty || extent == 0;
    // Beside a zero extent, too, as in numpy: strides are products of extents.
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(extent, 1), &count)) {
      throw Error("shape {} has more than 2^63 elements", to_string(shape));
    }
  }
  return is_empty ? 0 : count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Shape unravel(std::int64_t position, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = shape[d] == 0 ? 0 : position % shape[d];
    position = shape[d] == 0 ? 0 : position / shape[d];
  }
  return index;
}

namespace {
std::size_t byte_count(DType dtype, const Shape& shape) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(shape), static_cast<std::int64_t>(size_of(dtype)), &bytes)) {
    throw Error("{} tensor of shape {} has more than 2^63 bytes", name(dtype), to_string(shape));
  }
  return static_cast<std::size_t>(bytes);
}

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}
}  // namespace

Tensor::Tensor(DType dtype, Shape shape)
    : Tensor(dtype, shape, std::vector<std::byte>(byte_count(dtype, shape))) {}

Tensor::Tensor(DType dtype, Shape shape, std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      bytes_(bytes),
      owner_(std::move(owner)) {
  if (bytes_.size() != byte_count(dtype_, shape_)) {
    throw Error("{} tensor of shape {} needs {} bytes; got {}", name(dtype_), to_string(shape_),
                byte_count(dtype_, shape_), bytes_.size());
  }
}

Tensor::Tensor(DType dtype, Shape shape, std::vector<std::byte> bytes) {
  auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> view(*owned);
  *this = Tensor(dtype, std::move(shape), view, std::move(owned));
}

Tensor::Tensor(Shape shape, std::span<const float> elements)
    : Tensor(DType::float32, std::move(shape), copy_of(std::as_bytes(elements))) {}
Tensor::Tensor(Shape shape, std::span<const double> elements)
    : Tensor(DType::float64, std::move(shape), copy_of(std::as_bytes(elements))) {}

Tensor Tensor::from_values(DType dtype, Shape shape, std::span<const double> values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  encode(dtype, values, bytes);
  return {dtype, std::move(shape), std::move(bytes)};
}

Tensor Tensor::from_indices(Shape shape, std::span<const std::int64_t> values) {
  const auto bytes = std::as_bytes(values);
  return {DType::int64, std::move(shape), std::vector<std::byte>(bytes.begin(), bytes.end())};
}

double Tensor::value(std::int64_t position) const {
  const std::size_t size = size_of(dtype_);
  std::uint64_t code = 0;
  std::memcpy(&code, bytes_.data() + static_cast<std::size_t>(position) * size, size);
  return decode(dtype_, code);
}

std::vector<double> Tensor::values() const {
  std::vector<double> values(static_cast<std::size_t>(size_));
  constexpr std::int64_t worth_a_thread = 1 << 17;  // at less than a nanosecond for each
  in_parallel(size_, worth_a_thread, [&](std::int64_t begin, std::int64_t end) {
    const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
    decode(dtype_, bytes_.subspan(first * size_of(dtype_), count * size_of(dtype_)),
           std::span(values).subspan(first, count));
  });
  return values;
}

std::vector<std::int64_t> Tensor::indices() const {
  if (is_float(dtype_))
    throw Error("{} values cannot serve as indices; expected an integer dtype", name(dtype_));
  std::vector<std::int64_t> values(static_cast<std::size_t>(size_));
  const std::size_t size = size_of(dtype_);
  const bool is_signed = dtype_ == DType::int8 || dtype_ == DType::int16 || dtype_ == DType::int32;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t code = 0;
    std::memcpy(&code, bytes_.data() + i * size, size);
    const int unused = static_cast<int>(64 - 8 * size);
    // Sign extension by shifting up and arithmetically down again.
    values[i] =
        is_signed ? static_cast<std::int64_t>(code << unused) >> unused : static_cast<std::int64_t>(code);
  }
  return values;
}

Tensor Tensor::reshaped(Shape shape) const {
  return {dtype_, std::move(shape), bytes_, owner_};
}

Tensor gather_view(const Tensor& base, const Shape& shape, const Shape& strides, std::int64_t offset) {
  if (strides.size() != shape.size()) {
    throw Error("view has {} strides for shape {}; expected one each", strides.size(), to_string(shape));
  }
  const std::int64_t count = element_count(shape);
  std::int64_t lowest = offset, highest = offset;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t reach = 0;
    std::int64_t& end = strides[d] < 0 ? lowest : highest;
    if (count != 0 && (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
                       __builtin_add_overflow(end, reach, &end))) {
      throw Error("view of shape {} with strides {} overflows", to_string(shape), to_string(strides));
    }
  }
  if (count != 0 && (lowest < 0 || highest >= base.size())) {
    throw Error("view of shape {}, strides {}, offset {} reaches outside its {} elements", to_string(shape),
                to_string(strides), offset, base.size());
  }
  const std::size_t size = size_of(base.dtype());
  std::vector<std::byte> bytes(byte_count(base.dtype(), shape));
  Shape index(shape.size()), steps = strides;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) steps[d] = 0;  // never taken, so it was not checked either
  }
  // The last dims are copied at once where they are dense.
  std::size_t walked = shape.size();
  std::int64_t run = 1;
  while (count > 0 && walked > 0 && (steps[walked - 1] == run || shape[walked - 1] == 1))
    run *= shape[--walked];
  std::int64_t position = offset;
  for (std::int64_t i = 0; i < count; i += run) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size,
                base.bytes().data() + static_cast<std::size_t>(position) * size,
                static_cast<std::size_t>(run) * size);
    for (std::size_t d = walked; d-- > 0;) {
      position += steps[d];
      if (++index[d] < shape[d]) break;
      position -= steps[d] * shape[d];
      index[d] = 0;
    }
  }
  return {base.dtype(), shape, std::move(bytes)};
}

}  // namespace assay
