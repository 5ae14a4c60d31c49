#include "assay/align/reduce_order.h"

#include <vector>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

template <class T, class Round>
struct Adder {
  ReduceOrder order;
  Round round;  ///< behind every addition
  std::vector<const T*> parts;
  std::size_t size;
  std::vector<T> scratch = {};

  T at(std::size_t i) {
    if (order == ReduceOrder::tree) return in_pairs(i);
    // A ring cuts the elements into as many chunks as there are ranks.
    const std::size_t chunk = i / ((size + parts.size() - 1) / parts.size());
    return in_turn(i, order == ReduceOrder::ring ? chunk + 1 : 0);
  }

 private:
  // From part `first` on, around.
  T in_turn(std::size_t i, std::size_t first) const {
    T total = parts[first % parts.size()][i];
    for (std::size_t k = 1; k < parts.size(); ++k)
      total = round(total + parts[(first + k) % parts.size()][i]);
    return total;
  }
  T in_pairs(std::size_t i) {
    scratch.resize(parts.size());
    for (std::size_t k = 0; k < parts.size(); ++k) scratch[k] = parts[k][i];
    for (std::size_t left = parts.size(); left > 1; left = (left + 1) / 2) {
      for (std::size_t k = 0; k < left; k += 2)
        scratch[k / 2] = k + 1 < left ? round(scratch[k] + scratch[k + 1]) : scratch[k];
    }
    return scratch[0];
  }
};

template <class T, class Round>
std::vector<T> totals(const std::vector<const T*>& parts, std::size_t size, ReduceOrder order, Round round) {
  Adder<T, Round> adder = {order, round, parts, size};
  std::vector<T> total(size);
  for (std::size_t i = 0; i < size; ++i) total[i] = adder.at(i);
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
