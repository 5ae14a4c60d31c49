#pragma once

#include "assay/golden/error.h"
#include "assay/operators/engine/order.h"
#include "assay/operators/engine/reduce.h"

/// max and min, and their positions, over `dim`: what the operators of either direction share.
namespace assay {

/// Throws Error where an element of y has nothing to be chosen from.
/// @param over_one  `dim` names one dimension or all of them, no list
void bind_extremum(Dims&, const Shape& x, const Attributes&, std::string_view op, bool over_one);
/// The same with the attribute `ties`: a list of dimensions has no index.
void bind_ties(Dims&, const Shape& x, const Attributes&, std::string_view op);

/// y with its index, or amax and amin, which have none: `ties` decides.
template <bool smallest>
struct Extremum {
  static constexpr Attribute attributes[] = {
      {"dim", "null", "the dimension that is searched; null: all; with ties even also a list"},
      {"keepdim", "false", "keep it with extent 1"},
      {"ties", "\"index\"",
       "of equal elements the gradient goes to the first, whose index is an output (max(dim)); even: to each "
       "its share (amax)"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "S*", .role = Role::input, .domain = everywhere},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .exact = Exact::value},
      {"index", "R*", Role::output_index},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "1"},
  };
  static constexpr Example examples[] = {{"S=3x5x7", "dim=1"},
                                         {"S=4x6"},
                                         {"S=2x3x5", "dim=-1,keepdim=true"},
                                         {"S=2x3x4", "dim=[0,2],ties=\"even\""}};

  static Shape dims_in_result(const Shape& x, const Shape&, const Attributes& a) {
    return dims_left(x, a, "dim");
  }

  static bool even(const Attributes& a) { return a.text("ties") == "even"; }

  // The first that wins, of the elements behind y(r).
  template <class T>
  static std::int64_t winner(const View<T>& x, const Groups& groups, std::int64_t r) {
    return extreme_position(groups.size(), smallest,
                            [&](std::int64_t i) -> const T& { return x(groups(r, i)); });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const auto index = t.output_index("index");
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      index(r) = winner(x, groups, r);
      y(r) = x(groups(r, index(r)));
    }
    if (even(a)) t.slots().erase("index");
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"], g = t["grad_y"], grad_x = t["grad_x"];
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      if (!even(a)) {
        grad_x(groups(r, winner(x, groups, r))) = g(r);
        continue;
      }
      const auto wins = [&](std::int64_t i) {
        const T& v = x(groups(r, i));
        return v == y(r) || (isnan(v) && isnan(y(r)));
      };
      std::int64_t winners = 0;
      for (std::int64_t i = 0; i < groups.size(); ++i) winners += wins(i) ? 1 : 0;
      const T share = winners == 1 ? g(r) : g(r) / number<T>(winners);
      for (std::int64_t i = 0; i < groups.size(); ++i) {
        if (wins(i)) grad_x(groups(r, i)) = share;
      }
    }
  }
};

template <bool smallest>
struct ExtremumPosition {
  static constexpr Attribute attributes[] = {
      {"dim", "null", "the dimension that is searched; null: all, then the index counts in C order"},
      {"keepdim", "false", "keep it with extent 1"},
      {"select_last_index", "false", "of equal elements take the last (ONNX), not the first"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "S*", .role = Role::input, .domain = everywhere},
      {"index", "R*", Role::output_index},
  };
  static constexpr Example examples[] = {
      {"S=3x5x7", "dim=1"}, {"S=4x6"}, {"S=2x5", "dim=-1,keepdim=true,select_last_index=true"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"];
    const auto index = t.output_index("index");
    const Groups groups(d.extents("S"), a, "dim");
    const bool last = a.flag("select_last_index");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      const auto from = [&](std::int64_t i) { return last ? groups.size() - 1 - i : i; };
      index(r) = from(extreme_position(groups.size(), smallest,
                                       [&](std::int64_t i) -> const T& { return x(groups(r, from(i))); }));
    }
  }
};

}  // namespace assay
