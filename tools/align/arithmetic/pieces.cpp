#include "assay/align/arithmetic/pieces.h"

#include <cstring>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

// A tensor as `outer` runs of bytes, one for each index before dim.
struct Slices {
  Slices(const Tensor& t, std::size_t dim) {
    const Shape& shape = t.shape();
    for (std::size_t d = 0; d < dim; ++d) outer *= static_cast<std::size_t>(shape[d]);
    const std::size_t runs = outer == 0 ? 1 : outer;
    bytes = t.bytes().size() / runs;
  }
  std::size_t outer = 1, bytes = 0;
};

}  // namespace

Tensor piece(const Tensor& t, std::size_t dim, std::int64_t begin, std::int64_t end) {
  const Slices from(t, dim);
  Shape shape = t.shape();
  const std::int64_t extent = shape[dim];
  shape[dim] = end - begin;
  const std::size_t each = extent == 0 ? 0 : from.bytes / static_cast<std::size_t>(extent),
                    first = each * static_cast<std::size_t>(begin),
                    size = each * static_cast<std::size_t>(end - begin);
  std::vector<std::byte> bytes(from.outer * size);
  for (std::size_t k = 0; k < from.outer && size > 0; ++k)
    std::memcpy(bytes.data() + k * size, t.bytes().data() + k * from.bytes + first, size);
  return {t.dtype(), shape, std::move(bytes)};
}

Tensor selected_rows(const Tensor& t, std::span<const std::int64_t> rows) {
  Shape shape = t.shape();
  const std::size_t each = shape[0] == 0 ? 0 : t.bytes().size() / static_cast<std::size_t>(shape[0]);
  shape[0] = static_cast<std::int64_t>(rows.size());
  std::vector<std::byte> bytes;
  bytes.reserve(rows.size() * each);
  for (const std::int64_t row : rows) {
    const auto from = t.bytes().subspan(static_cast<std::size_t>(row) * each, each);
    bytes.insert(bytes.end(), from.begin(), from.end());
  }
  return {t.dtype(), shape, std::move(bytes)};
}

Tensor piece_of(const Tensor& t, std::size_t dim, std::int64_t k, std::int64_t n) {
  const std::int64_t extent = t.shape()[dim], each = extent / n;
  if (each * n != extent)
    throw Error("dim {} of {} does not divide into {} equal pieces", dim, to_string(t.shape()), n);
  return piece(t, dim, k * each, (k + 1) * each);
}

Tensor joined(std::span<const Tensor> parts, std::size_t dim) {
  Shape shape = parts.front().shape();
  shape[dim] = 0;
  std::vector<Slices> from;
  for (const Tensor& part : parts) {
    Shape rest = part.shape();
    rest[dim] = 0;
    Shape expected = shape;
    expected[dim] = 0;
    if (rest != expected || part.dtype() != parts.front().dtype())
      throw Error("cannot join {} {} and {} {} along dim {}", name(parts.front().dtype()),
                  to_string(parts.front().shape()), name(part.dtype()), to_string(part.shape()), dim);
    shape[dim] += part.shape()[dim];
    from.emplace_back(part, dim);
  }
  std::vector<std::byte> bytes;
  for (std::size_t k = 0; k < from.front().outer; ++k) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::byte* run = parts[i].bytes().data() + k * from[i].bytes;
      bytes.insert(bytes.end(), run, run + from[i].bytes);
    }
  }
  return {parts.front().dtype(), shape, std::move(bytes)};
}

std::vector<std::int64_t> selected_rows(std::span<const std::int64_t> matrix, std::int64_t columns,
                                        std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> selected;
  for (const std::int64_t row : rows) {
    const auto first = matrix.begin() + row * columns;
    selected.insert(selected.end(), first, first + columns);
  }
  return selected;
}

std::vector<std::int64_t> inverse(std::span<const std::int64_t> permutation) {
  std::vector<std::int64_t> result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i)
    result[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return result;
}

}  // namespace assay::align
