#include "assay/dumps/layout/order_of_parts.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace assay {
namespace {

// The index in the whole, along the dimension that is cut, of element i of part r.
using PlaceInWhole = std::function<std::int64_t(std::int64_t r, std::int64_t i)>;

struct CutTensor {
  std::span<const Tensor> parts;
  const Tensor& whole;
  std::size_t d;
  std::int64_t length;  // of a part
};

std::optional<CutTensor> cut_into(std::span<const Tensor> parts, const Tensor& whole, int dim) {
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t n = std::ssize(parts);
  if (n < 2 || d >= whole.shape().size() || whole.shape()[d] % n != 0) return {};
  Shape part = whole.shape();
  part[d] /= n;
  const bool are_equal = std::ranges::all_of(parts, [&](const Tensor& t) { return t.shape() == part; });
  return are_equal ? std::optional(CutTensor{parts, whole, d, part[d]}) : std::nullopt;
}

// Visits each element of the parts with that of the whole, until one is not wanted.
template <class Visit>
void walk(const CutTensor& cut, const PlaceInWhole& at, Visit visit) {
  const Shape& shape = cut.whole.shape();
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  const auto axis = shape.begin() + static_cast<std::ptrdiff_t>(cut.d);
  const std::int64_t outer = product(shape.begin(), axis), inner = product(axis + 1, shape.end());
  for (std::int64_t r = 0; r < std::ssize(cut.parts); ++r) {
    const Tensor& part = cut.parts[static_cast<std::size_t>(r)];
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < cut.length; ++i) {
        for (std::int64_t k = 0; k < inner; ++k) {
          if (!visit(part.value((o * cut.length + i) * inner + k),
                     cut.whole.value((o * shape[cut.d] + at(r, i)) * inner + k)))
            return;
        }
      }
    }
  }
}

bool are_parts(const CutTensor& cut, const PlaceInWhole& at) {
  bool are_equal = true;
  walk(cut, at, [&](double part, double whole) { return are_equal = part == whole; });
  return are_equal;
}

double squared_distance(const CutTensor& cut, const PlaceInWhole& at) {
  double sum = 0;
  walk(cut, at, [&](double part, double whole) {
    sum += (part - whole) * (part - whole);
    return true;
  });
  return sum;
}

}  // namespace

std::optional<PartOrder> order_of_parts(std::span<const Tensor> parts, const Tensor& whole, int dim) {
  const auto cut = cut_into(parts, whole, dim);
  if (!cut) return {};
  if (are_parts(*cut, [&](std::int64_t r, std::int64_t i) { return r * cut->length + i; }))
    return PartOrder::in_turn;
  if (cut->length % 2 != 0) return {};
  const std::int64_t half = cut->length / 2, n = std::ssize(parts);
  const bool is_zigzag = are_parts(*cut, [&](std::int64_t r, std::int64_t i) {
    return i < half ? r * half + i : (2 * n - 1 - r) * half + (i - half);
  });
  return is_zigzag ? std::optional(PartOrder::zigzag) : std::nullopt;
}

bool are_cut_by_halves(std::span<const Tensor> parts, const Tensor& whole, int dim) {
  const auto cut = cut_into(parts, whole, dim);
  if (!cut || cut->length % 2 != 0) return false;
  const std::int64_t half = cut->length / 2, n = std::ssize(parts);
  const double in_turn =
      squared_distance(*cut, [&](std::int64_t r, std::int64_t i) { return r * cut->length + i; });
  const double by_halves = squared_distance(*cut, [&](std::int64_t r, std::int64_t i) {
    return i < half ? r * half + i : (n + r) * half + (i - half);
  });
  constexpr double nearer = 4;  // half as far
  return nearer * by_halves < in_turn;
}

}  // namespace assay
