#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Operators that move elements: output i is input from[i], and the gradient of input j is the sum of those
/// of its copies.
namespace assay {

/// Flat C-order positions; `nowhere` for an element that is no copy.
using Positions = std::vector<std::int64_t>;
inline constexpr std::int64_t nowhere = -1;

/// How many elements apart the neighbours along each axis are, in C order.
Shape strides_of(const Shape&);

/// For every element of `result` in C order the sum of offset(axis, index) over its axes: a position, or
/// nowhere if any of them is. `offset` is called once per axis and index, and returns 0 or more, or nowhere.
template <std::invocable<std::size_t, std::int64_t> F>
Positions positions_of(const Shape& result, F offset) {
  Positions found = {0};
  for (std::size_t d = 0; d < result.size(); ++d) {
    Positions along;
    for (std::int64_t i = 0; i < result[d]; ++i) along.push_back(offset(d, i));
    Positions longer;
    longer.reserve(found.size() * along.size());
    for (const std::int64_t outer : found) {
      for (const std::int64_t inner : along) {
        longer.push_back(outer == nowhere || inner == nowhere ? nowhere : outer + inner);
      }
    }
    found = std::move(longer);
  }
  return found;
}

/// Where the box of shape `part` that begins at `start` along `axis` lies within `whole`.
Positions box_positions(const Shape& whole, std::size_t axis, std::int64_t start, const Shape& part);

/// The inverse of a map of positions: which outputs each of `size` inputs has gone to, in rising order.
class Copies {
 public:
  Copies(const Positions& from, std::int64_t size);
  std::span<const std::int64_t> of(std::int64_t input) const;
  /// The most copies that one input has.
  std::int64_t most() const;

 private:
  std::vector<std::size_t> begin_;
  Positions outputs_;
};

template <class T>
void copy_forward(const std::vector<T>& x, const Positions& from, std::vector<T>& y, const T& fill = T(0)) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = from[i] == nowhere ? fill : x[static_cast<std::size_t>(from[i])];
  }
}

/// The sum of the elements at these positions. That of one is the element itself: -0 stays -0, but where the
/// sum may continue elsewhere.
template <class T>
T sum_at(const std::vector<T>& values, std::span<const std::int64_t> at) {
  const auto value = [&](auto i) {
    return values[static_cast<std::size_t>(at[static_cast<std::size_t>(i)])];
  };
  const bool whole = !std::is_same_v<T, Unrounded>;
  return at.size() == 1 && whole ? value(0) : sum<T>(static_cast<std::int64_t>(at.size()), value);
}

/// Where every input has at most one copy.
template <class T>
void copy_back(const std::vector<T>& g, const Positions& from, std::vector<T>& grad_x) {
  std::ranges::fill(grad_x, T(0));
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (from[i] != nowhere) grad_x[static_cast<std::size_t>(from[i])] = g[i];
  }
}

template <class T>
void copy_backward(const std::vector<T>& g, const Positions& from, std::vector<T>& grad_x) {
  const Copies copies(from, static_cast<std::int64_t>(grad_x.size()));
  for (std::size_t j = 0; j < grad_x.size(); ++j) {
    grad_x[j] = sum_at(g, copies.of(static_cast<std::int64_t>(j)));
  }
}

/// What the operators from one x to one y share. Op has
///   static Shape shape(const Shape& x, const Attributes&);                  of y; throws Error
///   static Positions from(const Shape& x, const Shape& y, const Attributes&);
/// and where one input may go to several outputs (`repeats`)
///   static std::int64_t copies(const Shape& x, const Shape& y, const Attributes&);  the most of one input
template <class Op, bool repeats = false>
struct Copy {
  static constexpr Arg args[] = {
      {.name = "x", .shape = "X*", .role = Role::input, .domain = everywhere},
      {.name = "grad_y", .shape = "Y*", .role = Role::grad_output, .domain = repeats ? Domain{} : everywhere},
      {.name = "y", .shape = "Y*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x",
       .shape = "X*",
       .role = Role::grad_input,
       .terms = repeats ? "copies" : "",
       .exact = repeats ? Exact::no : Exact::bits},
  };
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    d.set("Y", Op::shape(x, a));
    if constexpr (repeats) {
      const bool empty = element_count(x) == 0 || d.at("Y") == 0;
      d.set("copies", empty ? 0 : Op::copies(x, d.extents("Y"), a));
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    T fill = T(0);
    if constexpr (requires { Op::template fill<T>(a); }) fill = Op::template fill<T>(a);
    copy_forward(t.slot("x").values, Op::from(d.extents("X"), d.extents("Y"), a), t.slot("y").values, fill);
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::vector<T>& g = t.slot("grad_y").values;
    const Positions from = Op::from(d.extents("X"), d.extents("Y"), a);
    if constexpr (repeats || std::is_same_v<T, Unrounded>)
      copy_backward(g, from, t.slot("grad_x").values);
    else
      copy_back(g, from, t.slot("grad_x").values);
  }
};

}  // namespace assay
