#include "assay/align/reduce_order.h"

#include <vector>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

template <class T>
struct Adder {
  ReduceOrder order;
  std::vector<const T*> parts;
  std::size_t size;
  std::vector<T> scratch;

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
    for (std::size_t k = 1; k < parts.size(); ++k) total += parts[(first + k) % parts.size()][i];
    return total;
  }
  T in_pairs(std::size_t i) {
    scratch.resize(parts.size());
    for (std::size_t k = 0; k < parts.size(); ++k) scratch[k] = parts[k][i];
    for (std::size_t left = parts.size(); left > 1; left = (left + 1) / 2) {
      for (std::size_t k = 0; k < left; k += 2)
        scratch[k / 2] = k + 1 < left ? scratch[k] + scratch[k + 1] : scratch[k];
    }
    return scratch[0];
  }
};

template <class T>
Tensor add_up(std::span<const Tensor> parts, ReduceOrder order) {
  const auto size = static_cast<std::size_t>(parts.front().size());
  Adder<T> adder = {order, {}, size, {}};
  // Bytes of a tensor are aligned for its elements unless it lies in a file, and these were computed.
  for (const Tensor& part : parts) adder.parts.push_back(reinterpret_cast<const T*>(part.bytes().data()));
  std::vector<T> total(size);
  for (std::size_t i = 0; i < size; ++i) total[i] = adder.at(i);
  return {parts.front().shape(), std::span<const T>(total)};
}

}  // namespace

Tensor add_in_order(std::span<const Tensor> parts, ReduceOrder order) {
  const Tensor& first = parts.front();
  for (const Tensor& part : parts) {
    if (part.shape() != first.shape() || part.dtype() != first.dtype())
      throw Error("a sum of {} {} and {} {}", name(first.dtype()), to_string(first.shape()),
                  name(part.dtype()), to_string(part.shape()));
  }
  if (first.dtype() == DType::float32) return add_up<float>(parts, order);
  if (first.dtype() == DType::float64) return add_up<double>(parts, order);
  throw Error("{} is not added up; expected float32 or float64", name(first.dtype()));
}

}  // namespace assay::align
