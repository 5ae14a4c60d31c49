#include "assay/operators/operator.h"
#include "assay/operators/router.h"

namespace assay {
namespace {

// N* tokens, E experts.
struct MoeZLoss {
  static constexpr std::string_view name = "moe_z_loss";
  static constexpr std::string_view math = "loss = coefficient mean_n (log sum_e exp(logits_ne))^2";
  static constexpr std::string_view source = "arXiv:2202.08906 eq. 5";
  static constexpr std::string_view aliases[] = {"z_loss_func"};
  static constexpr Attribute attributes[] = {
      {"coefficient", "1", "factor of the loss; Megatron-LM divides its own by the ranks of tp and cp"}};
  static constexpr Arg args[] = {
      {"logits", "N*,E", Role::input, -4, 4},
      {.name = "grad_y", .shape = "", .role = Role::grad_output, .optional = true},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "E + N"},
      {.name = "grad_logits", .shape = "N*,E", .role = Role::grad_input, .terms = "E"},
  };
  static constexpr Example examples[] = {{"N=5,E=3"}, {"N=2x3,E=4", "coefficient=0.001", "grad_y"}};

  // log sum exp of one token; without the largest apart it would lose its digits near 0.
  template <class T>
  static T log_sum(const Exponentials<T>& x) {
    const auto E = static_cast<std::int64_t>(x.e.size());
    const auto top = sorted_positions(E, true, [&](std::int64_t e) -> const T& { return x[e]; });
    return x.largest +
           without_cancellation<T>(
               [&] { return log1p(sum<T>(E, [&](auto e) { return e == top[0] ? x[e] - T(1) : x[e]; })); },
               [&] { return log(x.total); });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto z = t["logits"];
    const std::int64_t N = d.at("N"), E = d.at("E");
    const T squares = sum<T>(N, [&](auto n) {
      const T lse = log_sum<T>(Exponentials<T>(E, [&](std::int64_t e) -> const T& { return z(n, e); }));
      return lse * lse;
    });
    t["loss"]() = constant<T>(a.real("coefficient")) * (squares / number<T>(N));
  }

  // grad_z = 2 coefficient lse softmax(z) / N
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto z = t["logits"], grad = t["grad_logits"], g = t.optional("grad_y");
    const std::int64_t N = d.at("N"), E = d.at("E");
    const T scale = (g ? g() : T(1)) * constant<T>(a.real("coefficient")) * T(2) / number<T>(N);
    for (std::int64_t n = 0; n < N; ++n) {
      const Exponentials<T> x(E, [&](std::int64_t e) -> const T& { return z(n, e); });
      const T slope = scale * log_sum(x);
      for (std::int64_t e = 0; e < E; ++e) grad(n, e) = slope * (x[e] / x.total);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_z_loss = describe<MoeZLoss>();
}

}  // namespace assay
