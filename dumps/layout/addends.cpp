#include "assay/dumps/layout/addends.h"

#include <cmath>
#include <vector>

namespace assay {

bool are_addends(std::span<const Tensor> parts, const Tensor& whole) {
  const std::vector<double> wanted = whole.values();
  std::vector<double> sum(wanted.size()), first;
  for (const Tensor& t : parts) {
    std::vector<double> part = t.values();
    if (part.size() != sum.size()) return false;
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
    if (first.empty()) first = std::move(part);
  }
  double of_sum = 0, of_first = 0;
  for (std::size_t k = 0; k < first.size(); ++k) {
    of_sum += std::abs(sum[k] - wanted[k]);
    of_first += std::abs(first[k] - wanted[k]);
  }
  return of_sum < of_first;
}

}  // namespace assay
