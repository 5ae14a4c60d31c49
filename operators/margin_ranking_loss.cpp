#include "assay/operators/engine/margin.h"
#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct MarginRankingLoss : RowLoss {
  static constexpr std::string_view name = "margin_ranking_loss";
  static constexpr std::string_view math = "loss = mean max(margin - target (input1 - input2), 0)";
  static constexpr std::string_view source = "torch.nn.functional.margin_ranking_loss";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.margin_ranking_loss"};
  static constexpr Attribute attributes[] = {reduction, {"margin", "0", "beyond it a pair costs nothing"}};
  static constexpr Arg args[] = {
      {"input1", "S*", Role::input},
      {"input2", "S*", Role::input},
      {"target", "S*", Role::input, -1, 1},
      {.name = "grad_y", .shape = "", .role = Role::grad_output},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "summed"},
      {.name = "grad_input1", .shape = "S*", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_input2", .shape = "S*", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_target", .shape = "S*", .role = Role::grad_input, .terms = "1"},
  };
  static constexpr Example examples[] = {
      {"S=24", "margin=0.5"}, {"S=3x5", "reduction=\"sum\",margin=0.3"}, {"S=2x3x4", "reduction=\"none\""}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "S*" : arg.shape;
  }
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(name, d, a, element_count(shape_of_input(inputs, "input1")));
  }

  // What is beyond the margin, below 0.
  template <class T>
  struct Task {
    Task(Tensors<T>& t, const Attributes& a)
        : x(t["input1"].data()),
          y(t["input2"].data()),
          target(t["target"].data()),
          margin(constant<T>(a.real("margin"))) {}
    T operator()(std::int64_t i) const { return margin - target[i] * (x[i] - y[i]); }
    const T *x, *y, *target;
    T margin;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Task<T> task(t, a);
    forward_of<T>(t, a, d.at("S"), [&](std::int64_t i) { return maximum<T>(task(i), T(0)); });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Task<T> task(t, a);
    T *of_x = t["grad_input1"].data(), *of_y = t["grad_input2"].data(), *of_target = t["grad_target"].data();
    backward_of<T>(t, a, d.at("S"), [&](std::int64_t i, const T& g) {
      const T counted = gated<T>(task(i), g);
      of_y[i] = counted * task.target[i];
      of_x[i] = -of_y[i];
      of_target[i] = counted * (task.y[i] - task.x[i]);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator margin_ranking_loss = describe<MarginRankingLoss>();
}

}  // namespace assay
