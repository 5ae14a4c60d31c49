#include "assay/align/communicator.h"

#include <algorithm>
#include <array>

#include "assay/golden/error.h"
#include "assay/operators/golden.h"

namespace assay::align {
namespace {

using Values = std::vector<double>;

// The sum of two numbers in float32 or float64; doubles hold both.
double sum(DType dtype, double a, double b) {
  return dtype == DType::float32 ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b)) : a + b;
}

double in_pairs(DType dtype, std::vector<double> parts) {
  for (; parts.size() > 1; parts.resize((parts.size() + 1) / 2)) {
    for (std::size_t i = 0; i < parts.size(); i += 2)
      parts[i / 2] = i + 1 < parts.size() ? sum(dtype, parts[i], parts[i + 1]) : parts[i];
  }
  return parts.front();
}

// From rank `first` on, around.
double in_turn(DType dtype, const std::vector<double>& parts, std::size_t first) {
  double total = parts[first % parts.size()];
  for (std::size_t k = 1; k < parts.size(); ++k) total = sum(dtype, total, parts[(first + k) % parts.size()]);
  return total;
}

}  // namespace

Tensor all_reduce(Communicator& on, const std::vector<int>& group, const std::string& what,
                  const Tensor& mine, ReduceOrder order) {
  const DType dtype = mine.dtype();
  if (dtype != DType::float32 && dtype != DType::float64)
    throw Error("{}: {} is not added up; expected float32 or float64", what, name(dtype));
  std::vector<Values> given;
  for (const Tensor& part : on.exchange(group, what, mine)) {
    if (part.shape() != mine.shape() || part.dtype() != dtype)
      throw Error("{}: rank {} gives {} {}, another one {} {}", what, on.rank(), name(dtype),
                  to_string(mine.shape()), name(part.dtype()), to_string(part.shape()));
    given.push_back(part.values());
  }
  const std::size_t ranks = given.size(), size = given.front().size();
  Values total(size), parts(ranks);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t r = 0; r < ranks; ++r) parts[r] = given[r][i];
    // A ring cuts the elements into as many chunks as there are ranks.
    const std::size_t chunk = i / ((size + ranks - 1) / ranks);
    total[i] = order == ReduceOrder::tree ? in_pairs(dtype, parts)
                                          : in_turn(dtype, parts, order == ReduceOrder::ring ? chunk + 1 : 0);
  }
  return Tensor::from_values(dtype, mine.shape(), total);
}

}  // namespace assay::align
