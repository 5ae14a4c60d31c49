#include "assay/align/reduce_order.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

template <class T>
class Adder {
 public:
  Adder(std::span<const Tensor> parts, T* total) : total_(total) {
    // Bytes of a tensor are aligned for its elements unless it lies in a file, and these were computed.
    for (const Tensor& part : parts) parts_.push_back(reinterpret_cast<const T*>(part.bytes().data()));
  }

  // From part `first` on, around.
  void in_turn(std::size_t begin, std::size_t end, std::size_t first) const {
    const T* part = parts_[first % parts_.size()];
    std::copy(part + begin, part + end, total_ + begin);
    for (std::size_t k = 1; k < parts_.size(); ++k) {
      part = parts_[(first + k) % parts_.size()];
      for (std::size_t i = begin; i < end; ++i) total_[i] += part[i];
    }
  }

  // A ring cuts the elements into as many chunks as there are ranks.
  void in_chunks(std::size_t size) const {
    const std::size_t chunk = (size + parts_.size() - 1) / parts_.size();
    for (std::size_t begin = 0, k = 1; begin < size; begin += chunk, ++k)
      in_turn(begin, std::min(begin + chunk, size), k);
  }

  void in_pairs(std::size_t size) const {
    std::vector<T> sums(parts_.size());
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < parts_.size(); ++k) sums[k] = parts_[k][i];
      for (std::size_t left = parts_.size(); left > 1; left = (left + 1) / 2) {
        for (std::size_t k = 0; k < left; k += 2)
          sums[k / 2] = k + 1 < left ? sums[k] + sums[k + 1] : sums[k];
      }
      total_[i] = sums[0];
    }
  }

 private:
  T* total_;
  std::vector<const T*> parts_;
};

template <class T>
Tensor add_up(std::span<const Tensor> parts, ReduceOrder order) {
  const auto size = static_cast<std::size_t>(parts.front().size());
  std::vector<std::byte> bytes(size * sizeof(T));
  const Adder<T> adder(parts, reinterpret_cast<T*>(bytes.data()));
  switch (order) {
    case ReduceOrder::ranks:
      adder.in_turn(0, size, 0);
      break;
    case ReduceOrder::ring:
      adder.in_chunks(size);
      break;
    case ReduceOrder::tree:
      adder.in_pairs(size);
      break;
  }
  return {parts.front().dtype(), parts.front().shape(), std::move(bytes)};
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
