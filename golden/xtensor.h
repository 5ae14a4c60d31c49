#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#if __has_include(<xtensor/containers/xarray.hpp>)  // 0.26 and later
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xarray.hpp>
#include <xtensor/containers/xfixed.hpp>
#include <xtensor/containers/xtensor.hpp>
#include <xtensor/core/xexpression.hpp>
#include <xtensor/views/xbroadcast.hpp>
#include <xtensor/views/xstrided_view.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xbroadcast.hpp>
#include <xtensor/xexpression.hpp>
#include <xtensor/xfixed.hpp>
#include <xtensor/xstrided_view.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
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

/// What elements of type T are where nothing else is said: float32 for float, uint16 (never bfloat16) for
/// uint16_t, int64 for long and long long. Nothing for a type that no dtype is stored as.
template <class T>
constexpr std::optional<DType> dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  if constexpr (std::is_integral_v<T>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 8) return is_signed ? DType::int64 : DType::uint64;
    if constexpr (sizeof(T) == 4) return is_signed ? DType::int32 : DType::uint32;
    if constexpr (sizeof(T) == 2) return is_signed ? DType::int16 : DType::uint16;
    if constexpr (sizeof(T) == 1) return is_signed ? DType::int8 : DType::uint8;
  }
  return std::nullopt;
}

/// Whether elements of this dtype are stored as T. The 16- and 8-bit floats have no C++ type: their bits are
/// uint16_t, uint8_t (with_dtype).
template <class T>
constexpr bool is_stored_as(DType d) {
  if (dtype_of<T>() == d) return true;
  if constexpr (std::is_same_v<T, float>) return d == DType::tfloat32 || d == DType::hfloat32;
  if constexpr (std::is_same_v<T, std::uint16_t>) return d == DType::float16 || d == DType::bfloat16;
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return d == DType::boolean || d == DType::float8_e4m3fn || d == DType::float8_e5m2 ||
           d == DType::float4_e2m1fn;
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
template <class T>
auto as_xtensor(Tensor&&) = delete;

/// Whether an expression is memory with strides: a container, or views and broadcasts of one.
template <class E>
inline constexpr bool is_of_container = false;
template <class C, xt::layout_type L, class S, class Tag>
inline constexpr bool is_of_container<xt::xarray_container<C, L, S, Tag>> = true;
template <class C, xt::layout_type L, class S, class Tag>
inline constexpr bool is_of_container<xt::xarray_adaptor<C, L, S, Tag>> = true;
template <class C, std::size_t N, xt::layout_type L, class Tag>
inline constexpr bool is_of_container<xt::xtensor_container<C, N, L, Tag>> = true;
template <class C, std::size_t N, xt::layout_type L, class Tag>
inline constexpr bool is_of_container<xt::xtensor_adaptor<C, N, L, Tag>> = true;
template <class T, class S, xt::layout_type L, bool shared, class Tag>
inline constexpr bool is_of_container<xt::xfixed_container<T, S, L, shared, Tag>> = true;
template <class C, class... S>
inline constexpr bool is_of_container<xt::xview<C, S...>> = is_of_container<std::remove_cvref_t<C>>;
template <class C, class S, xt::layout_type L, class Getter>
inline constexpr bool is_of_container<xt::xstrided_view<C, S, L, Getter>> =
    is_of_container<std::remove_cvref_t<C>>;

/// A view of chosen indices (xt::keep) has no strides, and not every container has its elements in memory:
/// std::vector<bool> has bits.
template <class E>
concept StridedArray = is_of_container<E> && xt::has_data_interface<const E>::value &&
    xt::has_strides<const E>::value &&
    requires(const std::remove_cvref_t<typename E::storage_type>& storage) {
  { storage.data() } -> std::convertible_to<const typename E::value_type*>;
};

/// What has the memory behind a broadcast; void for what is no broadcast.
template <class E>
struct BroadcastOf {
  using type = void;
};
template <class C, class S>
struct BroadcastOf<xt::xbroadcast<C, S>> {
  using type = std::remove_cvref_t<C>;
};

/// Reads xtensor expressions; E is without reference.
template <class E>
struct Expression {
  using Element = std::remove_const_t<typename E::value_type>;
  static_assert(dtype_of<Element>().has_value(), "no dtype is stored as this type");
  static constexpr bool lies_in_memory = StridedArray<E> || StridedArray<typename BroadcastOf<E>::type>;

  template <class F>
  static TensorSource source(F&& expression, DType dtype) {
    if (sizeof(Element) != size_of(dtype)) {
      throw Error("elements of {} bytes cannot be {}, which has {}", sizeof(Element), name(dtype),
                  size_of(dtype));
    }
    if constexpr (!lies_in_memory) {
      return evaluated(expression, dtype);
    } else if constexpr (std::is_lvalue_reference_v<F>) {
      return in_place(expression, nullptr, dtype);
    } else {
      const auto held = std::make_shared<const E>(std::forward<F>(expression));
      return in_place(*held, held, dtype);
    }
  }

 private:
  template <class Extents>
  static Shape shape_of(const Extents& extents) {
    Shape shape;
    for (const auto extent : extents) shape.push_back(static_cast<std::int64_t>(extent));
    return shape;
  }

  static TensorSource in_place(const E& e, std::shared_ptr<const void> owner, DType dtype) {
    if constexpr (StridedArray<E>) {
      return strided_source(dtype, shape_of(e.shape()), first_of(e), shape_of(e.strides()), std::move(owner));
    } else {
      // Its last dimensions are those of what is broadcast, which has a stride of 0 where its extent is 1.
      const auto& narrow = e.expression();
      const Shape shape = shape_of(e.shape()), extents = shape_of(narrow.shape());
      Shape strides = shape_of(narrow.strides());
      for (std::size_t d = 0; d < strides.size(); ++d) strides[d] = extents[d] == 1 ? 0 : strides[d];
      strides.insert(strides.begin(), shape.size() - strides.size(), 0);
      return strided_source(dtype, shape, first_of(narrow), std::move(strides), std::move(owner));
    }
  }
  template <class Strided>
  static const std::byte* first_of(const Strided& e) {
    return reinterpret_cast<const std::byte*>(e.data() + e.data_offset());
  }

  static TensorSource evaluated(const E& e, DType dtype) {
    using Dense = xt::xarray<Element, xt::layout_type::row_major>;
    return Expression<Dense>::source(Dense(e), dtype);
  }
};

template <class E>
requires std::is_base_of_v<xt::xexpression<E>, E>
struct ArrayOf<E> {
  template <class F>
  static TensorSource source(F&& expression) {
    return Expression<E>::source(std::forward<F>(expression), *dtype_of<typename Expression<E>::Element>());
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
  return xt::xarray<std::remove_const_t<typename E::value_type>, xt::layout_type::row_major>(
      expression.derived_cast());
}

}  // namespace assay
