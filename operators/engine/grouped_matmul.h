#pragma once

#include <algorithm>
#include <numeric>

#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/products.h"

/// Rows of x, group by group, each group with a matrix of its own: the matmul of MoE experts.
namespace assay {

template <class T>
struct GroupedMatMulOf {
  std::int64_t K, N;
  bool transposed;  ///< w is stored [G, N, K]
  const std::vector<std::int64_t>& sizes;

  /// Calls f(rows, x of the group, w, y), the last three as the position of their first element.
  template <class F>
  void for_each_group(F f) const {
    std::int64_t row = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      f(sizes[g], row * K, static_cast<std::int64_t>(g) * K * N, row * N);
      row += sizes[g];
    }
  }

  void forward(const T* x, const T* w, T* y) const {
    for_each_group([&](auto rows, auto at_x, auto at_w, auto at_y) {
      products<T>({rows, N, K, {x + at_x, K, 1}, of_w(w + at_w), {y + at_y, N, 1}});
    });
  }

  /// grad_x = g w^T and grad_w = x^T g, each where it is not null; of an empty group grad_w is an exact 0.
  void backward(const T* x, const T* w, const T* g, T* grad_x, T* grad_w) const {
    for_each_group([&](auto rows, auto at_x, auto at_w, auto at_y) {
      const Strided<const T> of_x = {x + at_x, K, 1}, of_g = {g + at_y, N, 1};
      if (grad_x != nullptr)
        products<T>({rows, K, N, of_g, of_w(w + at_w).transposed(), {grad_x + at_x, K, 1}});
      if (grad_w != nullptr) products<T>({K, N, rows, of_x.transposed(), of_g, of_w(grad_w + at_w)});
    });
  }

 private:
  // (k, n) of one group.
  template <class U>
  Strided<U> of_w(U* w) const {
    return {w, transposed ? 1 : N, transposed ? K : 1};
  }
};

/// What grouped_matmul and what is fused with it share.
struct GroupedMatMulBase {
  static constexpr Attribute transpose_weight = {"transpose_weight", "false", "w is stored [G, N, K]"};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool weight = arg.name == "w" || arg.name == "grad_w";
    return weight && a.flag("transpose_weight") ? "G,N,K" : arg.shape;
  }

  /// "largest": the most rows of one group; all of them where the sizes are not known.
  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    const InputShape& sizes = *find_input(inputs, "group_sizes");
    const Shape& x = shape_of_input(inputs, "x");
    std::int64_t largest = x.empty() ? 0 : x[0];
    if (sizes.indices != nullptr) {
      const std::vector<std::int64_t> known = sizes.indices->indices();
      largest = known.empty() ? 0 : std::ranges::max(known);
    }
    d.set("largest", std::max<std::int64_t>(largest, 0));
  }

  template <class T>
  static GroupedMatMulOf<T> matmul_of(Tensors<T>& t, const Dims& d, const Attributes& a) {
    return {d.at("K"), d.at("N"), a.flag("transpose_weight"), t.slot("group_sizes").indices};
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.wants("y")) matmul_of(t, d, a).forward(t["x"].data(), t["w"].data(), t["y"].data());
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto wanted = [&](const char* grad) { return t.wants(grad) ? t[grad].data() : nullptr; };
    matmul_of(t, d, a).backward(t["x"].data(), t["w"].data(), t["grad_y"].data(), wanted("grad_x"),
                                wanted("grad_w"));
  }
};

}  // namespace assay
