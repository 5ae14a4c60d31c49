#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/sum_exp.h"

namespace assay {
namespace {

// R = tp ranks hold V / R classes each, in order; "share": V / R. A target outside of the vocabulary is on no
// rank: its logit counts as the largest one's, 0 after the shift, and has no gradient.
struct VocabParallelCrossEntropy {
  static constexpr std::string_view name = "vocab_parallel_cross_entropy";
  static constexpr std::string_view math =
      "loss = log sum_r sum_(v of r) exp(logits_v - m) - (logits_target - m), m = max_r max_(v of r) "
      "logits_v";
  static constexpr std::string_view source =
      "arXiv:1909.08053 sec. 3; label smoothing as in Megatron-LM, over the vocabulary of all ranks";
  static constexpr std::string_view aliases[] = {"VocabParallelCrossEntropy"};
  // Megatron-LM itself smooths over a rank's own classes (issue 7452), so that its loss depends on tp.
  static constexpr Attribute attributes[] = {
      {"tp", "1", "tensor parallel ranks"},
      {"label_smoothing", "0", "share of the target that is spread evenly over the V - 1 other classes"}};
  static constexpr Arg args[] = {
      {"logits", "N*,V", Role::input, -8, 8},
      {.name = "target", .shape = "N*", .role = Role::index, .low = 0, .high = 9},
      {"grad_y", "N*", Role::grad_output},
      {.name = "loss", .shape = "N*", .role = Role::output, .terms = "share + R"},
      {.name = "local_max", .shape = "R,N*", .role = Role::output, .exact = Exact::value},
      {.name = "global_max", .shape = "N*", .role = Role::output, .exact = Exact::value},
      {.name = "local_sum_exp", .shape = "R,N*", .role = Role::output, .terms = "share"},
      {.name = "grad_logits", .shape = "N*,V", .role = Role::grad_input, .terms = "share + R"},
  };
  static constexpr Example examples[] = {{"N=5,V=16", "tp=4"},
                                         {"N=2x3,V=11", "label_smoothing=0.125"},
                                         {"N=,V=10", "tp=2,label_smoothing=0.25"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "logits");
    const std::int64_t V = x.back(), R = a.integer("tp");
    if (R < 1 || V < 1 || V % R != 0) {
      throw Error(
          "vocab_parallel_cross_entropy: tp is {} and logits have shape {}; expected ranks with equal shares",
          R, to_string(x));
    }
    const double s = a.real("label_smoothing");
    if (!(s >= 0 && s < 1) || (s > 0 && V == 1)) {
      throw Error(
          "vocab_parallel_cross_entropy: label_smoothing is {} over {} classes; expected 0 to below 1, and "
          "other "
          "classes to spread it over",
          s, V);
    }
    d.set("R", R);
    d.set("share", V / R);
  }

  // The smoothed target: `at_target` at it, `spread` at all others. `sharp` is what the target has beyond
  // them.
  template <class T>
  struct Smoothing {
    Smoothing(double s, std::int64_t V)
        : on(s != 0),
          at_target(constant<T>(1 - s)),
          spread(on ? constant<T>(s) / number<T>(V - 1) : T(0)),
          sharp(on ? T(1) - constant<T>(s) * number<T>(V) / number<T>(V - 1) : T(1)) {}
    bool on;
    T at_target, spread, sharp;
  };

  template <class T>
  static auto token(Tensors<T>& t, const Dims& d, std::int64_t n) {
    const std::int64_t V = d.at("V"), R = d.at("R"), share = d.at("share");
    const auto logit = [x = t["logits"], n](std::int64_t v) { return x(n, v); };
    // As the ranks add: each its share, then their sums.
    return Probabilities<T, decltype(logit)>(V, logit, [&](auto shifted) {
      return sum<T>(
          R, [&](auto r) { return sum<T>(share, [&](auto i) { return exp(shifted(r * share + i)); }); });
    });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["logits"], local_max = t["local_max"], global_max = t["global_max"],
               local_sum = t["local_sum_exp"], loss = t["loss"];
    const auto target = t.index("target");
    const std::int64_t N = d.at("N"), V = d.at("V"), R = d.at("R"), share = d.at("share");
    const Smoothing<T> smoothing(a.real("label_smoothing"), V);
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t r = 0; r < R; ++r) {
        T& largest = local_max(r, n) = x(n, r * share);
        for (std::int64_t i = 1; i < share; ++i) largest = maximum<T>(largest, x(n, r * share + i));
        global_max(n) = r == 0 ? largest : maximum<T>(global_max(n), largest);
      }
      for (std::int64_t r = 0; r < R; ++r) {
        local_sum(r, n) = sum<T>(share, [&](auto i) { return exp(x(n, r * share + i) - global_max(n)); });
      }
      const auto p = token(t, d, n);
      const bool inside = target(n) >= 0 && target(n) < V;
      loss(n) = inside ? p.minus_log_p(target(n)) : p.log_total;
      if (!smoothing.on) continue;
      const T all = sum<T>(V, [&](auto v) { return p.minus_log_p(v); });
      loss(n) = loss(n) * smoothing.sharp + all * smoothing.spread;
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto g = t["grad_y"], grad = t["grad_logits"];
    const auto target = t.index("target");
    const std::int64_t N = d.at("N"), V = d.at("V");
    const Smoothing<T> smoothing(a.real("label_smoothing"), V);
    for (std::int64_t n = 0; n < N; ++n) {
      const auto p = token(t, d, n);
      for (std::int64_t v = 0; v < V; ++v) {
        const T q = v == target(n) ? smoothing.at_target : smoothing.spread;
        grad(n, v) = g(n) * p.slope(v, q, T(1) - q);
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator vocab_parallel_cross_entropy = describe<VocabParallelCrossEntropy>();
}

}  // namespace assay
