#pragma once

#include <array>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/operator.h"

/// What operators share that work element by element on one tensor: y = f(x), x and y of shape "N*".
namespace assay {

/// @param low, high, domain  of x
/// @param exact              of y and grad_x
constexpr std::array<Arg, 4> unary_args(double low, double high, Domain domain = {},
                                        Exact exact = Exact::no) {
  const std::string_view terms = exact == Exact::no ? "1" : "";
  return {{{.name = "x", .shape = "N*", .role = Role::input, .low = low, .high = high, .domain = domain},
           {"grad_y", "N*", Role::grad_output},
           {.name = "y", .shape = "N*", .role = Role::output, .terms = terms, .exact = exact},
           {.name = "grad_x", .shape = "N*", .role = Role::grad_input, .terms = terms, .exact = exact}}};
}

inline constexpr std::int64_t work_of_element = 8;

template <class T, class F>
void map_forward(Tensors<T>& t, const Dims& d, F f) {
  const auto x = t["x"], y = t["y"];
  const std::int64_t N = d.at("N");
  each_in_parallel(N, grain_of(work_of_element), [&](std::int64_t n) { y(n) = f(x(n)); });
}

/// grad_x = gradient(x, grad_y)
template <class T, class F>
void map_gradient(Tensors<T>& t, const Dims& d, F gradient) {
  const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
  const std::int64_t N = d.at("N");
  each_in_parallel(N, grain_of(work_of_element), [&](std::int64_t n) { grad_x(n) = gradient(x(n), g(n)); });
}

/// grad_x = grad_y f'(x)
template <class T, class F>
void map_backward(Tensors<T>& t, const Dims& d, F slope) {
  map_gradient(t, d, [&](const T& x, const T& g) { return g * slope(x); });
}

}  // namespace assay
