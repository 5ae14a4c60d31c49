#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

/// The scores by which routers rank experts, as float64 arithmetic without bounds: for those who ask how near
/// to each other two experts were.
namespace assay {

struct Scoring {
  std::string_view name;
  double slope;  ///< how much a score moves at most per unit of a logit
  void (*apply)(std::vector<double>& logits);
};

/// sigmoid' <= 1/4; of softmax, |dp_i| <= 2 p_i (1 - p_i) max |dz| <= 1/2 max |dz|.
inline constexpr Scoring scorings[] = {
    {"sigmoid", 0.25,
     [](std::vector<double>& z) {
       std::ranges::transform(z, z.begin(), [](double v) { return 1 / (1 + std::exp(-v)); });
     }},
    {"softmax", 0.5,
     [](std::vector<double>& z) {
       const double largest = *std::ranges::max_element(z);
       for (double& v : z) v = std::exp(v - largest);
       const double total = std::accumulate(z.begin(), z.end(), 0.0);
       for (double& v : z) v /= total;
     }},
    {"logit", 1, [](std::vector<double>&) {}},
};

}  // namespace assay
