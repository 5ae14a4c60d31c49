#include "assay/golden/error.h"
#include "assay/operators/operator.h"

namespace assay {
namespace {

// V stands behind the batch N* (none for one token alone) and before D* (pixels, say), as in torch.
// The target distribution of a token is q: (1 - s) w_t at the target t, s w_c / V everywhere beside it.
// "summed": the tokens behind one loss, 1 for reduction none.
struct CrossEntropy {
  static constexpr std::string_view name = "cross_entropy";
  static constexpr std::string_view math =
      "loss = sum_n sum_v -q_nv log softmax(logits_n)_v / sum_n w_target(n)";
  static constexpr std::string_view source =
      "torch.nn.CrossEntropyLoss; label smoothing arXiv:1512.00567 sec. 7";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.cross_entropy",
                                                 "torch.nn.CrossEntropyLoss", "CrossEntropy",
                                                 "fused_cross_entropy", "npu_cross_entropy_loss"};
  static constexpr Attribute attributes[] = {
      {"ignore_index", "-100", "targets of this value count for nothing"},
      {"label_smoothing", "0", "s: share of the target that is spread over all classes"},
      {"reduction", "\"mean\"", "mean (over the weight of the targets), sum or none"}};
  static constexpr Arg args[] = {
      {"logits", "N*,V,D*", Role::input, -8, 8},
      {.name = "target", .shape = "N*,D*", .role = Role::index, .indexes = "V", .except = "ignore_index"},
      {.name = "weight", .shape = "V", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {"grad_y", "", Role::grad_output},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "V summed"},
      {.name = "grad_logits", .shape = "N*,V,D*", .role = Role::grad_input, .terms = "V"},
  };
  static constexpr Example examples[] = {{"N=9,V=17,D=", "", "weight"},
                                         {"N=7,V=33,D=", "reduction=\"sum\",label_smoothing=0.125"},
                                         {"N=3,V=5,D=2x2", "reduction=\"none\",ignore_index=1"},
                                         {"N=,V=6,D=", "label_smoothing=0.25"}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool loss = arg.name == "grad_y" || arg.name == "loss";
    return loss && a.text("reduction") == "none" ? "N*,D*" : arg.shape;
  }
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "logits");
    if (x.empty()) throw Error("cross_entropy: logits have shape []; expected at least [V]");
    const auto v = x.begin() + (x.size() > 1 ? 1 : 0);
    d.set("N", Shape(x.begin(), v));
    d.set("V", *v);
    d.set("D", Shape(v + 1, x.end()));
    const std::string& reduction = a.text("reduction");
    if (reduction != "mean" && reduction != "sum" && reduction != "none") {
      throw Error("cross_entropy: reduction is \"{}\"; expected mean, sum or none", reduction);
    }
    d.set("summed", reduction == "none" ? 1 : d.at("N") * d.at("D"));
    const double s = a.real("label_smoothing");
    if (!(s >= 0 && s <= 1)) throw Error("cross_entropy: label_smoothing is {}; expected 0 to 1", s);
  }

  // One token's logits. The largest stands apart: log sum exp = largest + log1p(others) keeps small losses,
  // and 1 - p_top = others / total small gradients. Kernels have log(total) and p - 1.
  template <class T>
  struct Token {
    Token(const View<T>& x, std::int64_t n, std::int64_t dd, std::int64_t V) : x_(x), n_(n), d_(dd) {
      for (std::int64_t v = 1; v < V; ++v) {
        if (x(n, top, dd) < x(n, v, dd)) top = v;
      }
      // The top's own term is 0, or NaN where the row has no finite largest value.
      others = sum<T>(V, [&](auto v) { return v == top ? shifted(v) : exp(shifted(v)); });
      total = without_cancellation<T>([&] { return T(1) + others; },
                                      [&] { return sum<T>(V, [&](auto v) { return exp(shifted(v)); }); });
      log_total = without_cancellation<T>([&] { return log1p(others); }, [&] { return log(total); });
    }
    T shifted(std::int64_t v) const { return x_(n_, v, d_) - x_(n_, top, d_); }
    T minus_log_p(std::int64_t v) const { return log_total - shifted(v); }
    T p(std::int64_t v) const { return exp(shifted(v)) / total; }
    T one_minus_p(std::int64_t v) const { return v == top ? others / total : T(1) - p(v); }

    std::int64_t top = 0;
    T others, total, log_total;

   private:
    const View<T>& x_;
    std::int64_t n_, d_;
  };

  // q, apart for the target and for all classes.
  template <class T>
  struct Target {
    Target(Tensors<T>& t, const Dims& d, const Attributes& a)
        : weight(t.optional("weight")),
          index(t.index("target")),
          ignored(a.has("ignore_index") ? a.integer("ignore_index") : -1),
          sharp(constant<T>(1 - a.real("label_smoothing"))),
          spread(constant<T>(a.real("label_smoothing")) / number<T>(d.at("V"))),
          smooth(a.real("label_smoothing") != 0) {}
    T w(std::int64_t v) const { return weight ? weight(v) : T(1); }
    View<T> weight;
    View<const std::int64_t> index;
    std::int64_t ignored;
    T sharp, spread;
    bool smooth;
  };

  // What the sum of all losses is divided by: the weight of the targets that count.
  template <class T>
  static T total_weight(const Target<T>& target, const Dims& d) {
    const std::int64_t D = d.at("D");
    return sum<T>(d.at("N") * D, [&](auto i) {
      const std::int64_t v = target.index(i / D, i % D);
      return v == target.ignored ? T(0) : target.w(v);
    });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["logits"];
    const Target<T> target(t, d, attr);
    const std::int64_t N = d.at("N"), V = d.at("V"), D = d.at("D");
    std::vector<T> losses(static_cast<std::size_t>(N * D), T(0));
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t i = 0; i < D; ++i) {
        const std::int64_t v = target.index(n, i);
        if (v == target.ignored) continue;
        const Token<T> token(x, n, i, V);
        T& loss = losses[static_cast<std::size_t>(n * D + i)];
        loss = token.minus_log_p(v) * target.w(v);
        if (!target.smooth) continue;
        const T all = sum<T>(V, [&](auto c) { return token.minus_log_p(c) * target.w(c); });
        loss = loss * target.sharp + all * target.spread;
      }
    }
    std::vector<T>& loss = t.slot("loss").values;
    if (attr.text("reduction") == "none") {
      loss = losses;
      return;
    }
    loss[0] = sum<T>(N * D, [&](auto i) { return losses[static_cast<std::size_t>(i)]; });
    if (attr.text("reduction") == "mean") loss[0] /= total_weight(target, d);
  }

  // grad_v = p_v sum(q) - q_v = p_v (sum of the other q) - q_v (1 - p_v): without cancellation where q is one
  // class alone.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["logits"], grad = t["grad_logits"];
    const Target<T> target(t, d, attr);
    const std::int64_t N = d.at("N"), V = d.at("V"), D = d.at("D");
    const bool none = attr.text("reduction") == "none";
    const T scale = attr.text("reduction") == "mean" ? total_weight(target, d) : T(1);
    const T all_w = target.smooth ? sum<T>(V, [&](auto v) { return target.w(v); }) : T(0);
    const T* g = t["grad_y"].data();
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t i = 0; i < D; ++i) {
        const std::int64_t label = target.index(n, i);
        if (label == target.ignored) continue;
        const Token<T> token(x, n, i, V);
        const T upstream = g[none ? n * D + i : 0] / scale;
        for (std::int64_t v = 0; v < V; ++v) {
          T q = v == label ? target.sharp * target.w(v) : T(0);
          T others = v == label ? T(0) : target.sharp * target.w(label);
          if (target.smooth) {
            q += target.spread * target.w(v);
            others += target.spread * (all_w - target.w(v));
          }
          const T slope =
              without_cancellation<T>([&] { return token.p(v) * others - q * token.one_minus_p(v); },
                                      [&] { return token.p(v) * (others + q) - q; });
          grad(n, v, i) = upstream * slope;
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cross_entropy = describe<CrossEntropy>();
}

}  // namespace assay
