#pragma once

#include <algorithm>
#include <numeric>

#include "assay/operators/contract.h"

/// Rows of x, group by group, each group with a matrix of its own: the matmul of MoE experts.
namespace assay {

template <class T>
struct GroupedMatMulOf {
  std::int64_t K, N;
  bool transposed;  ///< w is stored [G, N, K]
  const std::vector<std::int64_t>& sizes;

  // Indices: rows, columns, k.
  Indexing of_x() const { return {{K, 0, 1}, {true, false, true}}; }
  Indexing of_w() const { return {{0, transposed ? K : 1, transposed ? 1 : N}, {false, true, true}}; }
  Indexing of_y() const { return {{N, 1, 0}, {true, true, false}}; }

  /// Calls f(extents, x of the group, w, y), each as the position of its first element.
  template <class F>
  void for_each_group(F f) const {
    std::int64_t row = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      f(Shape{sizes[g], N, K}, row * K, static_cast<std::int64_t>(g) * K * N, row * N);
      row += sizes[g];
    }
  }

  void forward(const T* x, const T* w, T* y) const {
    for_each_group([&](const Shape& extents, auto at_x, auto at_w, auto at_y) {
      const Factor<T> factors[] = {{x + at_x, of_x()}, {w + at_w, of_w()}};
      contract<T>(extents, factors, of_y(), y + at_y);
    });
  }

  /// grad_x = g w^T and grad_w = x^T g; of an empty group grad_w is an exact 0.
  void backward(const T* x, const T* w, const T* g, T* grad_x, T* grad_w) const {
    for_each_group([&](const Shape& extents, auto at_x, auto at_w, auto at_y) {
      const Factor<T> of_grad_x[] = {{g + at_y, of_y()}, {w + at_w, of_w()}};
      contract<T>(extents, of_grad_x, of_x(), grad_x + at_x);
      const Factor<T> of_grad_w[] = {{x + at_x, of_x()}, {g + at_y, of_y()}};
      contract<T>(extents, of_grad_w, of_w(), grad_w + at_w);
    });
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
    matmul_of(t, d, a).forward(t["x"].data(), t["w"].data(), t["y"].data());
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    matmul_of(t, d, a).backward(t["x"].data(), t["w"].data(), t["grad_y"].data(), t["grad_x"].data(),
                                t["grad_w"].data());
  }
};

}  // namespace assay
