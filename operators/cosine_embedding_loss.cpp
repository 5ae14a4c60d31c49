#include "assay/operators/engine/cosine.h"
#include "assay/operators/engine/margin.h"
#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct CosineEmbeddingLoss : RowLoss {
  static constexpr std::string_view name = "cosine_embedding_loss";
  static constexpr std::string_view math =
      "loss = mean of 1 - cos(input1, input2) where target = 1, of max(cos - margin, 0) where it is -1";
  static constexpr std::string_view source = "torch.nn.functional.cosine_embedding_loss";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.cosine_embedding_loss"};
  static constexpr Attribute attributes[] = {reduction, {"margin", "0", "below it others cost nothing"}};
  static constexpr Arg args[] = {
      {.name = "input1", .shape = "N*,C", .role = Role::input, .domain = cosine_domain},
      {.name = "input2", .shape = "N*,C", .role = Role::input, .domain = cosine_domain},
      {.name = "target", .shape = "N*", .role = Role::index, .low = -1, .high = 1},
      {.name = "grad_y", .shape = "", .role = Role::grad_output},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "C summed"},
      {.name = "grad_input1", .shape = "N*,C", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_input2", .shape = "N*,C", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {{"N=9,C=7"},
                                         {"N=5,C=4", "reduction=\"sum\",margin=0.25"},
                                         {"N=6,C=3", "reduction=\"none\",margin=-0.5"}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "N*" : arg.shape;
  }
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "input1");
    bind_reduction(name, d, a, element_count(Shape(x.begin(), x.end() - 1)));
  }

  // What torch adds to squared lengths (torch 2.13, aten/src/ATen/native/Loss.cpp).
  static constexpr double added = 1e-12;
  template <class T>
  static Cosine<T> cosine_of(Tensors<T>& t, const Dims& d, std::int64_t n) {
    const std::int64_t C = d.at("C");
    const Stepped<T> one{t["input1"].data() + n * C, 1}, other{t["input2"].data() + n * C, 1};
    return {C, one, other, length_of<T>(C, one, added), length_of<T>(C, other, added)};
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T margin = constant<T>(a.real("margin"));
    const std::int64_t* target = t.index("target").data();
    forward_of<T>(t, a, d.at("N"), [&](std::int64_t n) {
      const T cosine = cosine_of(t, d, n).value();
      if (target[n] == 1) return T(1) - cosine;
      return target[n] == -1 ? maximum<T>(cosine - margin, T(0)) : T(0);
    });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T margin = constant<T>(a.real("margin"));
    const std::int64_t* target = t.index("target").data();
    const auto of_x = t["grad_input1"], of_y = t["grad_input2"];
    backward_of<T>(t, a, d.at("N"), [&](std::int64_t n, const T& g) {
      const Cosine<T> cosine = cosine_of(t, d, n);
      const T counted = target[n] == 1 ? -g : target[n] == -1 ? gated<T>(cosine.value() - margin, g) : T(0);
      for (std::int64_t c = 0; c < d.at("C"); ++c) {
        of_x(n, c) = counted * cosine.slope_of_first(c);
        of_y(n, c) = counted * cosine.slope_of_second(c);
      }
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cosine_embedding_loss = describe<CosineEmbeddingLoss>();
}

}  // namespace assay
