#include "assay/dumps/layout/order_of_parts.h"

#include <functional>
#include <numeric>

namespace assay {
namespace {

// at: the index in the whole of element i of part r.
bool are_parts(std::span<const Tensor> parts, const Tensor& whole, std::size_t d,
               const std::function<std::int64_t(std::int64_t r, std::int64_t i)>& at) {
  const Shape& shape = whole.shape();
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  const auto axis = shape.begin() + static_cast<std::ptrdiff_t>(d);
  const std::int64_t outer = product(shape.begin(), axis), inner = product(axis + 1, shape.end());
  const std::int64_t length = shape[d] / std::ssize(parts);
  for (std::int64_t r = 0; r < std::ssize(parts); ++r) {
    const Tensor& part = parts[static_cast<std::size_t>(r)];
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t k = 0; k < inner; ++k) {
          if (part.value((o * length + i) * inner + k) != whole.value((o * shape[d] + at(r, i)) * inner + k))
            return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

std::optional<PartOrder> order_of_parts(std::span<const Tensor> parts, const Tensor& whole, int dim) {
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t n = std::ssize(parts);
  if (n < 2 || d >= whole.shape().size() || whole.shape()[d] % n != 0) return {};
  Shape part = whole.shape();
  part[d] /= n;
  for (const Tensor& t : parts) {
    if (t.shape() != part) return {};
  }
  if (are_parts(parts, whole, d, [&](std::int64_t r, std::int64_t i) { return r * part[d] + i; }))
    return PartOrder::in_turn;
  if (part[d] % 2 != 0) return {};
  const std::int64_t half = part[d] / 2;
  const bool is_zigzag = are_parts(parts, whole, d, [&](std::int64_t r, std::int64_t i) {
    return i < half ? r * half + i : (2 * n - 1 - r) * half + (i - half);
  });
  return is_zigzag ? std::optional(PartOrder::zigzag) : std::nullopt;
}

}  // namespace assay
