#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// H heads whose rows of the projections give D channels of a query, E of a key. Of latent attention, R
// channels of each query that turn meet a key that all heads share: they take the whole factor.
struct QkClip {
  static constexpr std::string_view name = "qk_clip";
  static constexpr std::string_view math =
      "gamma_h = min(1, tau / max_logit_h); w_q' = gamma^alpha w_q, w_k' = gamma^(1 - alpha) w_k, "
      "w_q_rot' = gamma w_q_rot";
  static constexpr std::string_view source = "MuonClip, Kimi K2 arXiv:2507.20534 sec. 2.1, alg. 1";
  static constexpr std::string_view aliases[] = {"QKClip", "MuonClip"};
  static constexpr Attribute attributes[] = {{"tau", "100", "the largest logit that is left as it is"},
                                             {"alpha", "0.5", "the share of queries in the factor"}};
  // A factor of a logit is a normal float32.
  static constexpr Domain logits = {.low = -0x1p63, .high = 0x1p63};
  static constexpr Arg args[] = {
      {"w_q", "H,D,C", Role::param},
      {"w_k", "H,E,C", Role::param},
      {.name = "w_q_rot", .shape = "H,R,C", .role = Role::param, .optional = true},
      {.name = "max_logits", .shape = "H", .role = Role::input, .low = 50, .high = 400, .domain = logits},
      {.name = "gamma", .shape = "H", .role = Role::output, .terms = "1"},
      {.name = "new_w_q", .shape = "H,D,C", .role = Role::output, .terms = "1"},
      {.name = "new_w_k", .shape = "H,E,C", .role = Role::output, .terms = "1"},
      {.name = "new_w_q_rot", .shape = "H,R,C", .role = Role::output, .optional = true, .terms = "1"},
  };
  static constexpr Example examples[] = {{"H=4,D=3,E=3,C=5", "", "w_q_rot"},
                                         {"H=3,D=2,E=2,R=2,C=4", "tau=75,alpha=0.25"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const double tau = a.real("tau"), alpha = a.real("alpha");
    if (!(tau > 0)) throw Error("qk_clip: tau is {}; expected above 0", tau);
    if (!(alpha >= 0 && alpha <= 1)) throw Error("qk_clip: alpha is {}; expected 0 to 1", alpha);
    if (find_input(inputs, "w_q_rot") == nullptr) d.set("R", std::int64_t{0});
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto largest = t["max_logits"], gamma = t["gamma"];
    const T tau = constant<T>(a.real("tau")), of_q = constant<T>(a.real("alpha")),
            of_k = constant<T>(1 - a.real("alpha"));
    const std::int64_t C = d.at("C");
    const auto scale = [&](std::string_view from, std::string_view to, std::string_view rows, std::int64_t h,
                           const T& factor) {
      const std::int64_t size = d.at(rows) * C;
      const T* w = t[from].data() + h * size;
      T* scaled = t[to].data() + h * size;
      for (std::int64_t i = 0; i < size; ++i) scaled[i] = factor * w[i];
    };
    for (std::int64_t h = 0; h < d.at("H"); ++h) {
      // A head that is not above it keeps its bits.
      gamma(h) = isnan(largest(h)) || largest(h) > tau ? tau / largest(h) : T(1);
      const bool clips = !(gamma(h) == T(1));
      scale("w_q", "new_w_q", "D", h, clips ? pow(gamma(h), of_q) : T(1));
      scale("w_k", "new_w_k", "E", h, clips ? pow(gamma(h), of_k) : T(1));
      if (t.has("w_q_rot")) scale("w_q_rot", "new_w_q_rot", "R", h, gamma(h));
    }
    if (!t.has("w_q_rot")) t.slots().erase("new_w_q_rot");
  }
};

}  // namespace

namespace ops {
extern constexpr Operator qk_clip = describe<QkClip>();
}

}  // namespace assay
