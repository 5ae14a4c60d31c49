#include "assay/operators/engine/class_loss.h"

namespace assay {
namespace {

// "weights": the terms of the weight that a mean divides by; 1 where it is a plain count.
struct NllLoss : ClassLoss {
  static constexpr std::string_view name = "nll_loss";
  static constexpr std::string_view math =
      "loss = sum_n -w_target(n) log_probs_n,target(n) / sum_n w_target(n)";
  static constexpr std::string_view source = "torch.nn.NLLLoss";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.nll_loss", "torch.nn.NLLLoss",
                                                 "NLLLoss", "NegativeLogLikelihoodLoss"};
  static constexpr Attribute attributes[] = {ignore_index, reduction};
  static constexpr RecordedAs recorded_as[] = {{"log_probs", "input"}};  // torch.nn.NLLLoss
  static constexpr Arg args[] = {
      {"log_probs", "N*,V,D*", Role::input, -8, 0},
      {.name = "target", .shape = "N*,D*", .role = Role::index, .indexes = "V", .except = "ignore_index"},
      {.name = "weight", .shape = "V", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "grad_y", .shape = "", .role = Role::grad_output, .optional = true},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "summed"},
      {.name = "grad_log_probs", .shape = "N*,V,D*", .role = Role::grad_input, .terms = "weights"},
  };
  static constexpr Example examples[] = {{"N=6,V=11,D="},
                                         {"N=7,V=5,D=", "ignore_index=2", "weight,grad_y"},
                                         {"N=4,V=5,D=3", "reduction=\"sum\""},
                                         {"N=3,V=5,D=2x2", "reduction=\"none\",ignore_index=1"},
                                         {"N=,V=6,D="}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_classes(name, "log_probs", d, inputs, a);
    const bool weighted = a.text("reduction") == "mean" && find_input(inputs, "weight") != nullptr;
    d.set("weights", weighted ? d.at("summed") : 1);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["log_probs"];
    const Targets<T> targets(t, a);
    const std::int64_t N = d.at("N"), D = d.at("D");
    std::vector<T> losses(static_cast<std::size_t>(N * D), T(0));
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t i = 0; i < D; ++i) {
        const std::int64_t v = targets.index(n, i);
        if (!targets.counts(v)) continue;
        losses[static_cast<std::size_t>(n * D + i)] = targets.weighted(-x(n, v, i), v);
      }
    }
    reduce<T>(t, a, std::move(losses), total_weight(targets, d));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto grad = t["grad_log_probs"];
    const Targets<T> targets(t, a);
    const T divisor = total_weight(targets, d);
    const std::int64_t N = d.at("N"), D = d.at("D");
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t i = 0; i < D; ++i) {
        const std::int64_t v = targets.index(n, i);
        if (!targets.counts(v)) continue;
        grad(n, v, i) = targets.weighted(-upstream<T>(t, a, n * D + i, divisor), v);
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator nll_loss = describe<NllLoss>();
}

}  // namespace assay
