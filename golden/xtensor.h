#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xexpression.hpp>

#include "assay/golden/error.h"
#include "assay/golden/tensor.h"

/// Tensors as xtensor's views and back: the only header that includes xtensor, and no other header includes
/// it.
namespace assay {

/// The dtype whose stored elements are T. The 16- and 8-bit floats have no C++ type: their bits are uint16_t,
/// uint8_t.
template <class T>
constexpr bool is_stored_as(DType d) {
  if constexpr (std::is_same_v<T, double>) return d == DType::float64;
  if constexpr (std::is_same_v<T, float>)
    return d == DType::float32 || d == DType::tfloat32 || d == DType::hfloat32;
  if constexpr (std::is_same_v<T, std::int64_t>) return d == DType::int64;
  if constexpr (std::is_same_v<T, std::int32_t>) return d == DType::int32;
  if constexpr (std::is_same_v<T, std::int16_t>) return d == DType::int16;
  if constexpr (std::is_same_v<T, std::int8_t>) return d == DType::int8;
  if constexpr (std::is_same_v<T, std::uint64_t>) return d == DType::uint64;
  if constexpr (std::is_same_v<T, std::uint32_t>) return d == DType::uint32;
  if constexpr (std::is_same_v<T, std::uint16_t>)
    return d == DType::uint16 || d == DType::float16 || d == DType::bfloat16;
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return d == DType::uint8 || d == DType::boolean || d == DType::float8_e4m3fn || d == DType::float8_e5m2;
  return false;
}

/// A read-only view of the tensor's elements; the tensor must outlive it.
/// @throws Error  if they are not stored as T, or not aligned for it (a tensor in a mapped file may be so)
template <class T>
auto as_xtensor(const Tensor& tensor) {
  if (!is_stored_as<T>(tensor.dtype())) {
    throw Error("a {} tensor cannot be seen as elements of this type; they have {} bytes each",
                name(tensor.dtype()), size_of(tensor.dtype()));
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.bytes().data()) % alignof(T) != 0) {
    throw Error("{} tensor at an address that is no multiple of {}; copy its bytes first",
                name(tensor.dtype()), alignof(T));
  }
  const std::vector<std::size_t> shape(tensor.shape().begin(), tensor.shape().end());
  const auto* data = reinterpret_cast<const T*>(tensor.bytes().data());
  return xt::adapt(data, static_cast<std::size_t>(tensor.size()), xt::no_ownership(), shape);
}

/// The expression's values as a tensor of the dtype that is stored as its value type: float64 for double,
/// uint16 (never bfloat16) for uint16_t, bool for bool.
template <class E>
Tensor to_tensor(const xt::xexpression<E>& expression) {
  using T = typename E::value_type;
  const xt::xarray<T, xt::layout_type::row_major> dense = expression.derived_cast();
  Shape shape;
  for (const auto extent : dense.shape()) shape.push_back(static_cast<std::int64_t>(extent));
  std::vector<std::byte> bytes(dense.size() * sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    for (std::size_t i = 0; i < dense.size(); ++i) bytes[i] = std::byte{dense.flat(i)};
    return {DType::boolean, std::move(shape), std::move(bytes)};
  } else {
    if (!bytes.empty()) std::memcpy(bytes.data(), dense.data(), bytes.size());
    for (const DType d : {DType::float64, DType::float32, DType::int64, DType::int32, DType::int16,
                          DType::int8, DType::uint64, DType::uint32, DType::uint16, DType::uint8}) {
      if (is_stored_as<T>(d)) return {d, std::move(shape), std::move(bytes)};
    }
    throw Error("no dtype is stored as this element type of {} bytes", sizeof(T));
  }
}

}  // namespace assay
