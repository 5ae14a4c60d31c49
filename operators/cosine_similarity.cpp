#include "assay/golden/parallel.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/cosine.h"

namespace assay {
namespace {

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind.
struct CosineSimilarity {
  static constexpr std::string_view name = "cosine_similarity";
  static constexpr std::string_view math = "y = sum x1 x2 / (max(|x1|, eps) max(|x2|, eps)) along dim";
  static constexpr std::string_view source = "torch.nn.functional.cosine_similarity";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.cosine_similarity",
                                                 "torch.cosine_similarity"};
  static constexpr Attribute attributes[] = {{"dim", "1", "the dimension of the vectors"},
                                             {"eps", "1e-8", "the least length"}};
  static constexpr Arg args[] = {
      {.name = "x1", .shape = "A*,C*,B*", .role = Role::input, .domain = cosine_domain},
      {.name = "x2", .shape = "A*,C*,B*", .role = Role::input, .domain = cosine_domain},
      {"grad_y", "A*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,B*", .role = Role::output, .terms = "C"},
      {.name = "grad_x1", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_x2", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {
      {"A=4,C=9,B="}, {"A=,C=5,B=3", "dim=0"}, {"A=2x2,C=7,B=", "dim=-1,eps=1e-6"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_axis(d, shape_of_input(inputs, "x1"), a.integer("dim"));
  }

  // f(the pair of vectors number i, from where to where in x1 and x2 its elements are)
  template <class T, class F>
  static void each_pair(Tensors<T>& t, const Dims& d, const Attributes& attr, F f) {
    const std::int64_t C = d.at("C"), B = d.at("B");
    const T eps = constant<T>(attr.real("eps"));
    const T *x = t["x1"].data(), *y = t["x2"].data();
    each_in_parallel(d.at("A") * B, grain_of(16 * C), [&](std::int64_t i) {
      const std::int64_t first = i / B * C * B + i % B;
      const Stepped<T> one{x + first, B}, other{y + first, B};
      f(i, first,
        Cosine<T>(C, one, other, maximum<T>(length_of<T>(C, one), eps),
                  maximum<T>(length_of<T>(C, other), eps)));
    });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    T* y = t["y"].data();
    each_pair(t, d, a, [&](std::int64_t i, std::int64_t, const Cosine<T>& cosine) { y[i] = cosine.value(); });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T* g = t["grad_y"].data();
    T *of_x = t["grad_x1"].data(), *of_y = t["grad_x2"].data();
    const std::int64_t C = d.at("C"), B = d.at("B");
    each_pair(t, d, a, [&](std::int64_t i, std::int64_t first, const Cosine<T>& cosine) {
      for (std::int64_t c = 0; c < C; ++c) {
        of_x[first + c * B] = g[i] * cosine.slope_of_first(c);
        of_y[first + c * B] = g[i] * cosine.slope_of_second(c);
      }
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cosine_similarity = describe<CosineSimilarity>();
}

}  // namespace assay
