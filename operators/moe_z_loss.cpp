#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/sum_exp.h"

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
  static constexpr Rows rows = Rows::together;
  static constexpr bool regularizes = true;

  static void bind(Dims&, InputShapes inputs, const Attributes&) {
    const Shape& logits = shape_of_input(inputs, "logits");
    if (!logits.empty() && logits.back() == 0) {
      throw Error("{}: logits has shape {}; expected at least one expert, the last extent", name,
                  to_string(logits));
    }
  }

  template <class T>
  static auto token(View<T> z, std::int64_t n, std::int64_t E) {
    const auto logit = [=](std::int64_t e) { return z(n, e); };
    return Probabilities<T, decltype(logit)>(E, logit);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto z = t["logits"];
    const std::int64_t N = d.at("N"), E = d.at("E");
    const T squares = sum<T>(N, [&](auto n) {
      const auto x = token(z, n, E);
      const T lse = z(n, x.top) + x.log_total;
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
      const auto x = token(z, n, E);
      const T slope = scale * (z(n, x.top) + x.log_total);
      for (std::int64_t e = 0; e < E; ++e) grad(n, e) = slope * x.p(e);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_z_loss = describe<MoeZLoss>();
}

}  // namespace assay
