#include "assay/golden/parallel.h"
#include "assay/operators/engine/class_loss.h"
#include "assay/operators/engine/fitted_logits.h"
#include "assay/operators/engine/softcap.h"
#include "assay/operators/engine/sum_exp.h"

namespace assay {
namespace {

// The target distribution of a token is q: with class indices (1 - s) w_t at the target t, with class
// probabilities (1 - s) w_c target_probs_c, and s w_c / V everywhere beside it. Models scale and cap logits
// behind their last projection: fused losses do both, and where a program has them in no module, its loss is
// of what the projection gave.
struct CrossEntropy : ClassLoss {
  static constexpr std::string_view name = "cross_entropy";
  static constexpr std::string_view math =
      "loss = sum_n sum_v -q_nv log softmax(x_n)_v / sum_n w_target(n), x = c tanh(s logits / c)";
  static constexpr std::string_view source =
      "torch.nn.CrossEntropyLoss; label smoothing arXiv:1512.00567 sec. 7; logit_scale as in "
      "flash-attention, "
      "softcap as in Liger-Kernel (arXiv:2410.10989)";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.cross_entropy",
                                                 "torch.nn.CrossEntropyLoss",
                                                 "CrossEntropy",
                                                 "fused_cross_entropy",
                                                 "npu_cross_entropy_loss",
                                                 "SoftmaxCrossEntropyLoss"};
  static constexpr Attribute attributes[] = {
      ignore_index,
      {"label_smoothing", "0", "s: share of the target that is spread over all classes"},
      {"reduction", "\"mean\"",
       "mean (over the weight of target, or the tokens of target_probs), sum or none"},
      {"logit_scale", "1", "s: factor of the logits, before a cap"},
      {"softcap", "0", "c: x = c tanh(s logits / c); 0: no cap, x = s logits"}};
  static constexpr Seen seen[] = {
      {"reduction", "\"none\"", "Megatron-LM, which masks the losses of tokens"},
      {"reduction", "\"sum\"", "Hugging Face, where it divides by the tokens of all micro-batches"},
      {"label_smoothing", "0.1", "arXiv:1512.00567, arXiv:1706.03762"}};
  static constexpr Seen mistaken[] = {{"label_smoothing", "0", "smoothing that is left out"},
                                      {"label_smoothing", "0.1", "arXiv:1512.00567, arXiv:1706.03762"},
                                      {"logit_scale", "1", "a scale that is left out"},
                                      {"softcap", "0", "a cap that is left out"}};
  static constexpr Solved solved[] = {
      {.attribute = "label_smoothing", .by = Solved::By::bisection, .low = 1e-4, .high = .9},
      {.attribute = "logit_scale", .by = Solved::By::candidates, .how = logit_scales},
      {.attribute = "softcap", .by = Solved::By::candidates, .how = softcaps}};
  static constexpr bool concludes = true;
  static constexpr RecordedAs recorded_as[] = {{"logits", "input"}};  // torch.nn.CrossEntropyLoss
  static constexpr Arg args[] = {
      {"logits", "N*,V,D*", Role::input, -8, 8},
      {.name = "target",
       .shape = "N*,D*",
       .role = Role::index,
       .optional = true,
       .indexes = "V",
       .except = "ignore_index"},
      {.name = "target_probs",
       .shape = "N*,V,D*",
       .role = Role::input,
       .low = 0,
       .high = 1,
       .optional = true},
      {.name = "weight", .shape = "V", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "grad_y", .shape = "", .role = Role::grad_output},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "V summed"},
      {.name = "grad_logits", .shape = "N*,V,D*", .role = Role::grad_input, .terms = "V"},
      {.name = "grad_target_probs",
       .shape = "N*,V,D*",
       .role = Role::grad_input,
       .optional = true,
       .terms = "V"},
  };
  static constexpr bool sums_of_rows = true;
  static constexpr Example examples[] = {
      {"N=9,V=17,D=", "", "weight,target_probs"},
      {"N=7,V=33,D=", "reduction=\"sum\",label_smoothing=0.125", "target_probs"},
      {"N=3,V=5,D=2x2", "reduction=\"none\",ignore_index=1", "target_probs"},
      {"N=,V=6,D=", "label_smoothing=0.25", "target_probs"},
      {"N=4,V=7,D=", "label_smoothing=0.25", "target"},
      {"N=2,V=5,D=3", "reduction=\"none\"", "target,weight"},
      {"N=5,V=9,D=", "softcap=3", "weight,target_probs"},
      {"N=2,V=5,D=3", "logit_scale=0.3,softcap=2,label_smoothing=0.25", "target"},
      {"N=4,V=7,D=", "logit_scale=0.0625,reduction=\"sum\"", "target_probs"}};

  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    const Tensor* logits = call.input("logits");
    if (call.output != "grad_logits" || logits == nullptr) return {};
    return fitted_logits(*logits, call.result);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_classes(name, "logits", d, inputs, a);
    if ((find_input(inputs, "target") == nullptr) == (find_input(inputs, "target_probs") == nullptr)) {
      throw Error(
          "cross_entropy: expected either target, class indices, or target_probs, class probabilities");
    }
    const double s = a.real("label_smoothing");
    if (!(s >= 0 && s <= 1)) throw Error("cross_entropy: label_smoothing is {}; expected 0 to 1", s);
    const double c = a.real("softcap");
    if (!(c >= 0)) throw Error("cross_entropy: softcap is {}; expected 0 or above", c);
  }

  static constexpr std::int64_t work_of_class = 16;  // an exponential or two

  // What is done to a logit before the loss, step by step.
  template <class T>
  struct Logit {
    explicit Logit(const Attributes& a)
        : is_scaled(a.real("logit_scale") != 1),
          is_capped(a.real("softcap") > 0),
          scale(constant<T>(a.real("logit_scale"))),
          cap(constant<T>(a.real("softcap"))) {}
    bool is_changed() const { return is_scaled || is_capped; }
    T scaled(const T& logit) const { return is_scaled ? stored(logit * scale) : logit; }
    T operator()(const T& logit) const {
      return is_capped ? softcapped(scaled(logit), cap, stored<T>) : scaled(logit);
    }
    // The loss may have cast what it was given, and has its gradient in that dtype.
    T gradient(const T& logit, const T& of_changed) const {
      T g = stored(of_changed);
      if (is_capped) {
        const T slope = slope_of_softcap(scaled(logit), cap, stored<T>);
        g = stored(stored(stored(g * cap) * slope) / cap);
      }
      return is_scaled ? g * scale : g;
    }
    bool is_scaled, is_capped;
    T scale, cap;
  };

  // One call: its token (n, i) has logits and q.
  template <class T>
  struct Task {
    Task(Tensors<T>& t, const Dims& d, const Attributes& a)
        : targets(t, a),
          logit(a),
          given(t["logits"]),
          x(given),
          probs(t.optional("target_probs")),
          V(d.at("V")),
          smooth(a.real("label_smoothing") != 0),
          sharp(constant<T>(1 - a.real("label_smoothing"))),
          spread(constant<T>(a.real("label_smoothing")) / number<T>(V)),
          divisor(probs ? number<T>(d.at("N") * d.at("D")) : total_weight(targets, d)) {
      if (!logit.is_changed()) return;
      changed.resize(static_cast<std::size_t>(t.size("logits")));
      x = View<T>(changed.data(), t.slot("logits").extents);
      each_in_parallel(t.size("logits"), grain_of(work_of_class),
                       [&](std::int64_t i) { x.data()[i] = logit(given.data()[i]); });
    }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;

    auto token(std::int64_t n, std::int64_t i) const {
      const auto x_v = [this, n, i](std::int64_t v) { return x(n, v, i); };
      return Probabilities<T, decltype(x_v)>(V, x_v);
    }
    bool counts(std::int64_t n, std::int64_t i) const {
      return V > 0 && (probs || targets.counts(targets.index(n, i)));
    }
    bool is_target(std::int64_t n, std::int64_t v, std::int64_t i) const { return targets.index(n, i) == v; }
    // The target before it is smoothed.
    T sharp_q(std::int64_t n, std::int64_t v, std::int64_t i) const {
      const T share = probs ? probs(n, v, i) : T(is_target(n, v, i) ? 1 : 0);
      return smooth ? sharp * share : share;
    }
    T q(std::int64_t n, std::int64_t v, std::int64_t i) const {
      return targets.weighted(smooth ? sharp_q(n, v, i) + spread : sharp_q(n, v, i), v);
    }

    Targets<T> targets;
    Logit<T> logit;
    std::vector<T> changed;
    View<T> given, x, probs;
    std::int64_t V;
    bool smooth;
    T sharp, spread, divisor;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Task<T> task(t, d, a);
    const std::int64_t N = d.at("N"), V = d.at("V"), D = d.at("D");
    std::vector<T> losses(static_cast<std::size_t>(N * D), T(0));
    each_in_parallel(N, grain_of(work_of_class * V * D), [&](std::int64_t n) {
      for (std::int64_t i = 0; i < D; ++i) {
        if (!task.counts(n, i)) continue;
        const auto token = task.token(n, i);
        T& loss = losses[static_cast<std::size_t>(n * D + i)];
        if (task.probs) {
          loss = sum<T>(V, [&](auto v) { return token.minus_log_p(v) * task.q(n, v, i); });
          continue;
        }
        const std::int64_t target = task.targets.index(n, i);
        loss = task.targets.weighted(token.minus_log_p(target), target);
        if (!task.smooth) continue;
        const T all = sum<T>(V, [&](auto v) { return task.targets.weighted(token.minus_log_p(v), v); });
        loss = loss * task.sharp + all * task.spread;
      }
    });
    reduce<T>(t, a, std::move(losses), task.divisor);
  }

  // The gradient of x_v is p_v sum(q) - q_v.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto grad = t["grad_logits"], grad_probs = t.optional("grad_target_probs");
    const Task<T> task(t, d, a);
    const std::int64_t N = d.at("N"), V = d.at("V"), D = d.at("D");
    const bool dense = task.probs || task.smooth;
    each_in_parallel(N, grain_of(work_of_class * V * D), [&](std::int64_t n) {
      for (std::int64_t i = 0; i < D; ++i) {
        if (!task.counts(n, i)) continue;
        const auto token = task.token(n, i);
        const T g = upstream<T>(t, a, n * D + i, task.divisor);
        const T all = dense ? sum<T>(V, [&](auto v) { return task.q(n, v, i); })
                            : task.targets.weighted(T(1), task.targets.index(n, i));
        for (std::int64_t v = 0; v < V; ++v) {
          const T q = task.q(n, v, i);
          const T others = dense || task.is_target(n, v, i) ? all - q : all;
          const T of_x = g * token.slope(v, q, others);
          grad(n, v, i) = task.logit.is_changed() ? task.logit.gradient(task.given(n, v, i), of_x) : of_x;
          if (!grad_probs) continue;
          const T weighted = task.targets.weighted(g * token.minus_log_p(v), v);
          grad_probs(n, v, i) = task.smooth ? weighted * task.sharp : weighted;
        }
      }
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cross_entropy = describe<CrossEntropy>();
}

}  // namespace assay
