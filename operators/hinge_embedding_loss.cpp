#include "assay/operators/engine/margin.h"
#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct HingeEmbeddingLoss : RowLoss {
  static constexpr std::string_view name = "hinge_embedding_loss";
  static constexpr std::string_view math =
      "loss = mean of input where target = 1, of max(margin - input, 0) where target = -1";
  static constexpr std::string_view source = "torch.nn.functional.hinge_embedding_loss";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.hinge_embedding_loss"};
  static constexpr Attribute attributes[] = {reduction, {"margin", "1", "beyond it the others cost nothing"}};
  static constexpr Arg args[] = {
      {"input", "S*", Role::input, -4, 4},
      {.name = "target", .shape = "S*", .role = Role::index, .low = -1, .high = 1},
      {.name = "grad_y", .shape = "", .role = Role::grad_output},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "summed"},
      {.name = "grad_input", .shape = "S*", .role = Role::grad_input, .terms = "1"},
  };
  static constexpr Example examples[] = {
      {"S=24"}, {"S=3x5", "reduction=\"sum\",margin=0.3"}, {"S=2x3x4", "reduction=\"none\""}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "S*" : arg.shape;
  }
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(name, d, a, element_count(shape_of_input(inputs, "input")));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T margin = constant<T>(a.real("margin"));
    const T* x = t["input"].data();
    const std::int64_t* target = t.index("target").data();
    forward_of<T>(t, a, d.at("S"), [&](std::int64_t i) {
      const T other = is_other(target[i]) ? maximum<T>(margin - x[i], T(0)) : T(0);
      return is_similar(target[i]) ? other + x[i] : other;
    });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T margin = constant<T>(a.real("margin"));
    const T* x = t["input"].data();
    T* grad = t["grad_input"].data();
    const std::int64_t* target = t.index("target").data();
    backward_of<T>(t, a, d.at("S"), [&](std::int64_t i, const T& g) {
      const T of_similar = is_similar(target[i]) ? g : T(0);
      grad[i] = is_other(target[i]) ? of_similar - gated<T>(margin - x[i], g) : of_similar;
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator hinge_embedding_loss = describe<HingeEmbeddingLoss>();
}

}  // namespace assay
