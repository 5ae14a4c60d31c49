#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/newton_schulz.h"
#include "assay/operators/engine/optimizer.h"

namespace assay {
namespace {

// longest: the longest inner product of a Newton-Schulz step.
struct Muon {
  static constexpr std::string_view name = "muon";
  static constexpr std::string_view math =
      "b' = momentum b + (1 - dampening) g, u = (1 - dampening) g + momentum b' (nesterov) or b', "
      "o = Newton-Schulz(u / (||u|| + eps)), param' = param (1 - lr wd) - lr scale o";
  static constexpr std::string_view source =
      "K. Jordan, \"Muon\" (2024), kellerjordan.github.io/posts/muon; arXiv:2502.16982 sec. 2.2";
  static constexpr std::string_view aliases[] = {"torch.optim.Muon", "Muon"};
  static constexpr Attribute attributes[] = {
      {"steps", "null", "how many steps; null: as many as grads has"},
      {"lr", "0.02", "learning rate"},
      {"momentum", "0.95", "what the buffer keeps of itself"},
      {"dampening", "null",
       "what it does not take of the gradient; null: momentum, an average; 0: a sum (Moonlight)"},
      {"nesterov", "true", "look ahead"},
      {"weight_decay", "0", "decoupled: param loses lr weight_decay of itself"},
      {"ns_steps", "5", "Newton-Schulz steps"},
      {"coefficients", "[3.4445, -4.775, 2.0315]", "a, b, c of every step, or three per step"},
      {"eps", "1e-7", "added to the norm"},
      {"eps_is_floor", "false", "the norm is at least eps instead (torch.optim.Muon, Megatron)"},
      {"scale", "\"sqrt_max_1_rows_over_cols\"",
       "of the update: sqrt_max_1_rows_over_cols (torch's original, Megatron's shape_scaling), "
       "sqrt_max_rows_cols (Megatron's spectral; torch's match_rms_adamw with scale_factor 0.2), "
       "sqrt_rows_over_cols (unit_rms_norm) or none"},
      {"scale_factor", "1", "times this; 0.2 in Moonlight"},
      grad_scale,
      {"maximize", "false", "ascend: the gradients change sign"}};
  static constexpr Seen seen[] = {
      {"momentum", "0.95", "K. Jordan, Moonlight"},
      {"dampening", "0", "Moonlight, Megatron-LM"},
      {"nesterov", "false", "Megatron-LM, --muon-use-nesterov not given"},
      {"scale", "\"sqrt_max_rows_cols\"", "Moonlight; torch's match_rms_adamw"},
      {"scale", "\"none\"", "an update of norm 1"},
      {"scale", "\"sqrt_rows_over_cols\"", "unit_rms_norm"},
      {"scale_factor", "0.2", "Moonlight"},
  };
  static constexpr Seen mistaken[] = {
      {"ns_steps", "6", "one more"}, {"ns_steps", "4", "one less"}, {"ns_steps", "3", "two less"}};
  static constexpr StepState states[] = {{"momentum_buffer", "momentum_1"}};
  static constexpr StepSetting settings[] = {
      {"momentum", StepNumber::kept, "momentum_1"},  {"grad_scale", StepNumber::gradient, "momentum_1"},
      {"dampening", StepNumber::form, "momentum_1"}, {"weight_decay", StepNumber::decay, "param_1"},
      {"lr", StepNumber::rate, "param_1"},           {"nesterov", StepNumber::form, "param_1"},
      {"ns_steps", StepNumber::form, "param_1"},     {"scale", StepNumber::form, "param_1"},
      {"scale_factor", StepNumber::form, "param_1"}};
  static constexpr StepUsage step = {"param", "grads", "param_1", states, settings};
  static constexpr Arg args[] = {
      {"param", "M,N", Role::param},
      {"grads", "T,M,N", Role::input},
      {.name = "momentum_buffer", .shape = "M,N", .role = Role::input, .optional = true},
      {.name = "momentum_#", .shape = "M,N", .role = Role::output, .terms = "#"},
      {.name = "orthogonal_#", .shape = "M,N", .role = Role::output, .terms = "longest"},
      {.name = "param_#", .shape = "M,N", .role = Role::output, .terms = "longest"},
  };
  static constexpr Example examples[] = {
      {"M=7,N=2,T=2", "", "momentum_buffer"},
      {"M=2,N=3,T=2",
       "dampening=0,weight_decay=0.1,scale=\"sqrt_max_rows_cols\",scale_factor=0.2,eps_is_floor=true"},
      {"M=1,N=4,T=1",
       "nesterov=false,ns_steps=2,coefficients=[4,-6,3,2,-1.5,0.5],scale=\"sqrt_rows_over_cols\""}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& param = shape_of_input(inputs, "param");
    bind_steps(d, name, inputs, a);
    d.set("longest", std::max(param[0], param[1]));
    scale(a, 1, 1);
    polynomials(a);
  }

  static double scale(const Attributes& a, std::int64_t m, std::int64_t n) {
    const std::string& kind = a.text("scale");
    const auto rows = static_cast<double>(m), columns = static_cast<double>(n);
    const double factor = a.real("scale_factor");
    if (kind == "sqrt_max_1_rows_over_cols") return factor * std::sqrt(std::max(1.0, rows / columns));
    if (kind == "sqrt_max_rows_cols") return factor * std::sqrt(std::max(rows, columns));
    if (kind == "sqrt_rows_over_cols") return factor * std::sqrt(rows / columns);
    if (kind == "none") return factor;
    throw Error(
        "muon: scale is \"{}\"; expected sqrt_max_1_rows_over_cols, sqrt_max_rows_cols, sqrt_rows_over_cols "
        "or none",
        kind);
  }

  static std::vector<Quintic> polynomials(const Attributes& a) {
    const std::vector<double> given = a.list("coefficients");
    const std::int64_t steps = a.integer("ns_steps");
    if (steps < 0 || steps > 100) throw Error("muon: ns_steps is {}; expected 0 to 100", steps);
    const auto count = static_cast<std::size_t>(steps);
    if (given.size() != 3 && given.size() != 3 * count) {
      throw Error("muon: coefficients has {} numbers; expected 3, or 3 for each of {} steps", given.size(),
                  steps);
    }
    std::vector<Quintic> found;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = given.size() == 3 ? 0 : 3 * k;
      found.push_back(Quintic{given[i], given[i + 1], given[i + 2]});
    }
    return found;
  }

  // The iteration runs on the side with fewer rows.
  template <class T>
  static Matrix<T> orthogonal(Matrix<T> x, const Attributes& a) {
    if (x.rows > x.columns) return transposed(orthogonal(transposed(x), a));
    // Row by row: in one loop over all elements the last ones would be next to nothing beside the sum.
    const T norm = sqrt(
        sum<T>(x.rows, [&](auto i) { return sum<T>(x.columns, [&](auto k) { return x(i, k) * x(i, k); }); }));
    const T eps = constant<T>(a.real("eps"));
    const T divisor = a.flag("eps_is_floor") ? maximum(norm, eps) : norm + eps;
    return newton_schulz(std::move(x), divisor, polynomials(a));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const double kept = a.real("momentum"), left = a.has("dampening") ? a.real("dampening") : kept;
    const T momentum = constant<T>(kept), taken = complement<T>(left);
    const T lr = constant<T>(a.real("lr"));
    const TakenGradient<T> gradient(a);
    const T keep = T(1) - lr * constant<T>(a.real("weight_decay"));
    const bool decays = a.real("weight_decay") != 0;
    const std::int64_t M = d.at("M"), N = d.at("N");
    const T rate = lr * constant<T>(scale(a, M, N));
    std::vector<T> param = state(t, "param"), buffer = state(t, "momentum_buffer");
    const auto grads = t["grads"];
    for (std::int64_t k = 0; k < d.at("T"); ++k) {
      Matrix<T> update(M, N);
      for (std::size_t i = 0; i < buffer.size(); ++i) {
        const T g = taken * gradient(grads.data()[static_cast<std::size_t>(k) * buffer.size() + i]);
        buffer[i] = stored(momentum * buffer[i] + g);
        update.values[i] = a.flag("nesterov") ? g + momentum * buffer[i] : buffer[i];
      }
      if (k + 1 == d.at("T") && t.wants(std::string("momentum_") + std::to_string(k + 1)) && !t.wants("")) {
        give_state(t, "momentum", k + 1, buffer);
        break;
      }
      const Matrix<T> o = orthogonal(std::move(update), a);
      for (std::size_t i = 0; i < param.size(); ++i)
        param[i] = (decays ? param[i] * keep : param[i]) - rate * o.values[i];
      give_state(t, "momentum", k + 1, buffer);
      give_state(t, "orthogonal", k + 1, o.values);
      give_state(t, "param", k + 1, param);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator muon = describe<Muon>();
}

}  // namespace assay
