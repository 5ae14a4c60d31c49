#include "assay/dumps/layout/addends.h"

#include <cmath>
#include <utility>
#include <vector>

namespace assay {

namespace {

// What no factor makes of the whole, as a share of its square.
double left_of(const std::vector<double>& values, const std::vector<double>& whole) {
  double product = 0, square = 0, of_whole = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    product += values[k] * whole[k];
    square += values[k] * values[k];
    of_whole += whole[k] * whole[k];
  }
  const double explained = square * of_whole > 0 ? product * product / (square * of_whole) : 0;
  return product > 0 ? 1 - explained : 1;
}

}  // namespace

bool are_addends(std::span<const Tensor> parts, const Tensor& whole) {
  const std::vector<double> wanted = whole.values();
  std::vector<double> sum(wanted.size()), first;
  for (const Tensor& t : parts) {
    std::vector<double> part = t.values();
    if (part.size() != sum.size()) return false;
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
    if (first.empty()) first = std::move(part);
  }
  if (first.size() == 1)  // no direction
    return std::abs(sum[0] - wanted[0]) < std::abs(first[0] - wanted[0]);
  return !first.empty() && left_of(sum, wanted) < left_of(first, wanted);
}

}  // namespace assay
