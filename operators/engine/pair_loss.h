#pragma once

#include <array>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/class_loss.h"

/// Losses of rows, whose mean or sum is taken (torch.nn.functional.mse_loss and its like).
namespace assay {

struct RowLoss {
  static constexpr Attribute reduction = {"reduction", "\"mean\"", "mean, sum or none"};
  static constexpr Seen seen[] = {{"reduction", "\"sum\"", "where a program divides the loss itself"},
                                  {"reduction", "\"none\"", "where it weights the losses"}};

  /// "summed": the losses behind one number. Throws Error for an unknown reduction.
  static void bind_reduction(std::string_view op, Dims& d, const Attributes& a, std::int64_t losses) {
    const std::string& how = a.text("reduction");
    if (how != "mean" && how != "sum" && how != "none")
      throw Error("{}: reduction is \"{}\"; expected mean, sum or none", op, how);
    d.set("summed", how == "none" ? 1 : losses);
  }

  /// Loss i is f(i), of so many.
  template <class T, class F>
  static void forward_of(Tensors<T>& t, const Attributes& a, std::int64_t count, F f) {
    std::vector<T> losses(static_cast<std::size_t>(count), T(0));
    each_in_parallel(count, grain_of(32),
                     [&](std::int64_t i) { losses[static_cast<std::size_t>(i)] = f(i); });
    ClassLoss::reduce<T>(t, a, std::move(losses), number<T>(count));
  }
  /// f(i, the gradient of loss i)
  template <class T, class F>
  static void backward_of(Tensors<T>& t, const Attributes& a, std::int64_t count, F f) {
    const T divisor = number<T>(count);
    each_in_parallel(count, grain_of(32),
                     [&](std::int64_t i) { f(i, ClassLoss::upstream<T>(t, a, i, divisor)); });
  }
};

/// A loss of each element of input and target, which have one shape.
struct PairLoss : RowLoss {
  /// @param input, target  where their fill or domain is not the default
  static constexpr std::array<Arg, 6> args_with(Arg input = {"input", "S*", Role::input},
                                                Arg target = {"target", "S*", Role::input}) {
    return {{input,
             target,
             {.name = "grad_y", .shape = "", .role = Role::grad_output},
             {.name = "loss", .shape = "", .role = Role::output, .terms = "summed"},
             {.name = "grad_input", .shape = "S*", .role = Role::grad_input, .terms = "1"},
             {.name = "grad_target", .shape = "S*", .role = Role::grad_input, .terms = "1"}}};
  }
  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "S*" : arg.shape;
  }
  static void bind_pairs(std::string_view op, Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(op, d, a, element_count(shape_of_input(inputs, "input")));
  }

  /// loss = f(input, target)
  template <class T, class F>
  static void map_losses(Tensors<T>& t, const Dims& d, const Attributes& a, F f) {
    const T *x = t["input"].data(), *y = t["target"].data();
    forward_of<T>(t, a, d.at("S"), [&](std::int64_t i) { return f(x[i], y[i]); });
  }
  /// grad_input = of_input(input, target, g), grad_target likewise.
  template <class T, class F, class G>
  static void map_gradients(Tensors<T>& t, const Dims& d, const Attributes& a, F of_input, G of_target) {
    const T *x = t["input"].data(), *y = t["target"].data();
    T *grad_x = t["grad_input"].data(), *grad_y = t["grad_target"].data();
    backward_of<T>(t, a, d.at("S"), [&](std::int64_t i, const T& g) {
      grad_x[i] = of_input(x[i], y[i], g);
      grad_y[i] = of_target(x[i], y[i], g);
    });
  }
  /// The same of a loss of input - target: slope(input - target, g).
  template <class T, class F>
  static void map_difference_gradients(Tensors<T>& t, const Dims& d, const Attributes& a, F slope) {
    map_gradients<T>(
        t, d, a, [&](const T& x, const T& y, const T& g) { return slope(T(x - y), g); },
        [&](const T& x, const T& y, const T& g) { return -slope(T(x - y), g); });
  }
};

/// -1, 0, 1
template <class T>
T sign(const T& x) {
  if (isnan(x)) return x;
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
}

}  // namespace assay
