#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#if __has_include(<xtensor/containers/xarray.hpp>)  // 0.26 and later
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xarray.hpp>
#include <xtensor/core/xexpression.hpp>
#include <xtensor/views/xbroadcast.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xbroadcast.hpp>
#include <xtensor/xexpression.hpp>
#endif

#include "assay/golden/error.h"
#include "assay/golden/tensor.h"
#include "assay/golden/tensor_source.h"

/// xtensor's arrays, views and expressions as tensors, and tensors as its views: the only header that
/// includes xtensor, and no other header includes it. With it, whatever takes a Tensor or a TensorSource
/// takes an expression:
///
///   xt::xarray<float> x = ..;
///   compute_golden(find_operator("softmax"), {{{"x", x}}}, attributes, Level::fp64);
///   diff({{"y", xt::transpose(y)}}, {{"y", golden}}, options);
///
/// What lies in memory is read there: a TensorSource in any layout (strided, broadcast, Fortran order), a
/// Tensor where the elements lie in C order, else it packs them once. An expression that is computed (x + y)
/// is computed once. An lvalue is borrowed: it must outlive the tensor and stay as it is. An rvalue is kept;
/// a view of an lvalue still borrows that.
namespace assay {

/// The dtype whose stored elements are T. The 16- and 8-bit floats have no C++ type: their bits are uint16_t,
/// uint8_t (with_dtype).
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

/// What elements of type T are where nothing else is said: float32 for float, uint16 (never bfloat16) for
/// uint16_t.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  for (const DType d : {DType::float64, DType::float32, DType::int64, DType::int32, DType::int16, DType::int8,
                        DType::uint64, DType::uint32, DType::uint16}) {
    if (is_stored_as<T>(d)) return d;
  }
  static_assert(std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, float> ||
                    (std::is_integral_v<T> && sizeof(T) <= 8),
                "no dtype is stored as this type");
  return DType::uint8;
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
template <class T>
auto as_xtensor(Tensor&&) = delete;

/// Reads xtensor expressions; E is without reference.
template <class E>
struct Expression {
  using Element = std::remove_const_t<typename E::value_type>;
  static constexpr bool lies_in_memory =
      xt::has_data_interface<const E>::value && xt::has_strides<const E>::value;

  template <class F>
  static TensorSource source(F&& expression, DType dtype) {
    if (sizeof(Element) != size_of(dtype)) {
      throw Error("elements of {} bytes cannot be {}, which has {}", sizeof(Element), name(dtype),
                  size_of(dtype));
    }
    if constexpr (!lies_in_memory && !is_broadcast<E>::value) {
      return evaluated(expression, dtype);
    } else {
      // Shared by all windows: an rvalue itself, of an lvalue its address.
      std::shared_ptr<const E> held;
      if constexpr (std::is_lvalue_reference_v<F>) {
        held = std::shared_ptr<const E>(std::shared_ptr<const void>(), std::addressof(expression));
      } else {
        held = std::make_shared<const E>(std::forward<F>(expression));
      }
      if constexpr (lies_in_memory) {
        return in_place(*held, held, dtype);
      } else {
        return {dtype, shape_of(*held),
                TensorSource::Fill([held](std::int64_t begin, std::span<std::byte> out) {
                  auto at = held->template cbegin<xt::layout_type::row_major>() + begin;
                  for (std::size_t i = 0; i < out.size(); i += sizeof(Element), ++at) {
                    const Element value = *at;
                    std::memcpy(out.data() + i, &value, sizeof(Element));
                  }
                })};
      }
    }
  }

 private:
  template <class X>
  struct is_broadcast : std::false_type {};
  template <class C, class X>
  struct is_broadcast<xt::xbroadcast<C, X>> : std::true_type {};

  static Shape shape_of(const E& e) {
    Shape shape;
    for (const auto extent : e.shape()) shape.push_back(static_cast<std::int64_t>(extent));
    return shape;
  }

  static TensorSource in_place(const E& e, std::shared_ptr<const void> owner, DType dtype) {
    const Shape shape = shape_of(e);
    Shape strides;
    for (const auto stride : e.strides()) strides.push_back(static_cast<std::int64_t>(stride));
    const auto* first = reinterpret_cast<const std::byte*>(e.data() + e.data_offset());
    std::int64_t dense = 1;
    bool in_c_order = true;
    for (std::size_t d = shape.size(); d-- > 0; dense *= shape[d])
      in_c_order = in_c_order && (shape[d] == 1 || strides[d] == dense);
    const std::int64_t count = element_count(shape);
    if (!in_c_order && count > 0)
      return strided_source(dtype, shape, first, std::move(strides), std::move(owner));
    return Tensor(dtype, shape, {first, static_cast<std::size_t>(count) * sizeof(Element)}, std::move(owner));
  }

  static TensorSource evaluated(const E& e, DType dtype) {
    const xt::xarray<Element, xt::layout_type::row_major> dense = e;
    std::vector<std::byte> bytes(dense.size() * sizeof(Element));
    if constexpr (std::is_same_v<Element, bool>) {
      for (std::size_t i = 0; i < dense.size(); ++i) bytes[i] = std::byte{dense.flat(i)};
    } else if (!bytes.empty()) {
      std::memcpy(bytes.data(), dense.data(), bytes.size());
    }
    return Tensor(dtype, shape_of(e), std::move(bytes));
  }
};

template <class E>
requires std::is_base_of_v<xt::xexpression<E>, E>
struct ArrayOf<E> {
  template <class F>
  static TensorSource source(F&& expression) {
    return Expression<E>::source(std::forward<F>(expression), dtype_of<typename Expression<E>::Element>());
  }
  template <class F>
  static Tensor tensor(F&& expression) {
    return source(std::forward<F>(expression)).whole();
  }
};

/// Elements that are the bits of another dtype: uint16_t as bfloat16 or float16, uint8_t as float8.
/// @throws Error  if an element of that dtype has another size
template <class E>
requires std::is_base_of_v<xt::xexpression<std::remove_cvref_t<E>>, std::remove_cvref_t<E>> TensorSource
with_dtype(DType dtype, E&& expression) {
  return Expression<std::remove_cvref_t<E>>::source(std::forward<E>(expression), dtype);
}

/// The expression's values as a tensor of its own, in C order: a copy, whatever becomes of the expression.
template <class E>
Tensor to_tensor(const xt::xexpression<E>& expression) {
  const xt::xarray<std::remove_const_t<typename E::value_type>, xt::layout_type::row_major> dense =
      expression.derived_cast();
  const Tensor borrowed(dense);
  return {borrowed.dtype(), borrowed.shape(),
          std::vector<std::byte>(borrowed.bytes().begin(), borrowed.bytes().end())};
}

}  // namespace assay
