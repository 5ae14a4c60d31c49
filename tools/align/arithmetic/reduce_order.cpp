#include "assay/align/arithmetic/reduce_order.h"

#include <algorithm>
#include <vector>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

// Elements [begin, end), from part `first` on, around.
template <class T, class Round>
void add_in_turn(const std::vector<const T*>& parts, std::size_t first, std::size_t begin, std::size_t end,
                 Round round, std::vector<T>& total) {
  std::copy(parts[first] + begin, parts[first] + end, total.begin() + static_cast<std::ptrdiff_t>(begin));
  for (std::size_t k = 1; k < parts.size(); ++k) {
    const T* part = parts[(first + k) % parts.size()];
    for (std::size_t i = begin; i < end; ++i) total[i] = round(total[i] + part[i]);
  }
}

template <class T, class Round>
T add_in_pairs(const std::vector<const T*>& parts, std::size_t i, Round round, std::vector<T>& scratch) {
  for (std::size_t k = 0; k < parts.size(); ++k) scratch[k] = parts[k][i];
  for (std::size_t left = parts.size(); left > 1; left = (left + 1) / 2) {
    for (std::size_t k = 0; k < left; k += 2)
      scratch[k / 2] = k + 1 < left ? round(scratch[k] + scratch[k + 1]) : scratch[k];
  }
  return scratch[0];
}

/// @param round  behind every addition
template <class T, class Round>
std::vector<T> totals(const std::vector<const T*>& parts, std::size_t size, ReduceOrder order, Round round) {
  const std::size_t n = parts.size();
  std::vector<T> total(size), scratch(n);
  switch (order) {
    case ReduceOrder::ranks:
      add_in_turn(parts, 0, 0, size, round, total);
      break;
    case ReduceOrder::ring: {  // as many chunks of the elements as there are ranks
      const std::size_t each = (size + n - 1) / n;
      for (std::size_t chunk = 0; chunk < n; ++chunk)
        add_in_turn(parts, (chunk + 1) % n, std::min(size, chunk * each), std::min(size, (chunk + 1) * each),
                    round, total);
      break;
    }
    case ReduceOrder::tree:
      for (std::size_t i = 0; i < size; ++i) total[i] = add_in_pairs(parts, i, round, scratch);
      break;
  }
  return total;
}

template <class T>
Tensor add_up(std::span<const Tensor> parts, ReduceOrder order) {
  std::vector<const T*> elements;
  // Bytes of a tensor are aligned for its elements unless it lies in a file, and these were computed.
  for (const Tensor& part : parts) elements.push_back(reinterpret_cast<const T*>(part.bytes().data()));
  const auto size = static_cast<std::size_t>(parts.front().size());
  const std::vector<T> total = totals(elements, size, order, [](T x) { return x; });
  return {parts.front().shape(), std::span<const T>(total)};
}

// Behind every addition that of float32 and then that of the dtype, as on devices.
Tensor add_up_halves(std::span<const Tensor> parts, ReduceOrder order, RoundSum when) {
  const Tensor& first = parts.front();
  std::vector<std::vector<float>> widened;
  std::vector<const float*> elements;
  for (const Tensor& part : parts) {
    const std::vector<double> values = part.values();
    widened.emplace_back(values.begin(), values.end());
  }
  for (const std::vector<float>& part : widened) elements.push_back(part.data());
  const std::vector<float> total =
      totals(elements, static_cast<std::size_t>(first.size()), order,
             [dtype = first.dtype(), each = when == RoundSum::each](float x) {
               return each ? static_cast<float>(round_to(dtype, static_cast<double>(x))) : x;
             });
  return Tensor::from_values(first.dtype(), first.shape(), std::vector<double>(total.begin(), total.end()));
}

}  // namespace

Tensor add_in_order(std::span<const Tensor> parts, ReduceOrder order, RoundSum when) {
  const Tensor& first = parts.front();
  for (const Tensor& part : parts) {
    if (part.shape() != first.shape() || part.dtype() != first.dtype())
      throw Error("a sum of {} {} and {} {}", name(first.dtype()), to_string(first.shape()),
                  name(part.dtype()), to_string(part.shape()));
  }
  if (first.dtype() == DType::float32) return add_up<float>(parts, order);
  if (first.dtype() == DType::float64) return add_up<double>(parts, order);
  if (first.dtype() == DType::bfloat16 || first.dtype() == DType::float16)
    return add_up_halves(parts, order, when);
  throw Error("{} is not added up; expected float64, float32, bfloat16 or float16", name(first.dtype()));
}

}  // namespace assay::align
