#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// One step of balancing without an auxiliary loss; tokens_per_expert: the choices of all micro-batches and
// ranks of the step. Whether an expert is above the mean is exact as long as counts times E are.
// "steps": what a centred step subtracts.
struct ExpertBiasUpdate {
  static constexpr std::string_view name = "expert_bias_update";
  static constexpr std::string_view math =
      "updated_bias = expert_bias + rate sign(mean(tokens_per_expert) - tokens_per_expert)";
  static constexpr std::string_view source = "arXiv:2408.15664 alg. 1; Megatron-LM get_updated_expert_bias";
  static constexpr std::string_view aliases[] = {"get_updated_expert_bias"};
  static constexpr Attribute attributes[] = {
      {"rate", "1e-3", "u: length of the step; 0.001 in DeepSeek-V3"},
      {"center", "false", "subtract the mean of the steps of all experts (torchtitan)"}};
  static constexpr Arg args[] = {
      {"expert_bias", "E", Role::param, -1, 1},
      {"tokens_per_expert", "E", Role::input, 0, 100},
      {.name = "updated_bias", .shape = "E", .role = Role::output, .terms = "steps"},
  };
  static constexpr Seen seen[] = {{"center", "true", "torchtitan"}};
  static constexpr RecordedAs recorded_as[] = {{"expert_bias", "e_score_correction_bias"},
                                               {"expert_bias", "expert_bias"},
                                               {"tokens_per_expert", "tokens_per_expert", made_around}};
  static constexpr StepSetting settings[] = {{"rate", StepNumber::rate, "updated_bias"},
                                             {"center", StepNumber::form, "updated_bias"}};
  static constexpr StepUsage step = {"expert_bias", "tokens_per_expert", "updated_bias", {}, settings};
  static constexpr Example examples[] = {{"E=9"}, {"E=6", "center=true,rate=0.0625"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& bias = shape_of_input(inputs, "expert_bias");
    d.set("steps", a.flag("center") ? bias[0] : 1);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto bias = t["expert_bias"], tokens = t["tokens_per_expert"], updated = t["updated_bias"];
    const std::int64_t E = d.at("E");
    const T total = sum<T>(E, [&](auto e) { return tokens(e); });
    // NaN if a count is.
    const auto sign = [&](std::int64_t e) {
      const T load = tokens(e) * number<T>(E);
      if (isnan(load) || isnan(total)) return load + total;
      return load < total ? T(1) : total < load ? T(-1) : T(0);
    };
    const T rate = constant<T>(a.real("rate"));
    const T mean = a.flag("center") ? sum<T>(E, sign) / number<T>(E) : T(0);
    for (std::int64_t e = 0; e < E; ++e)
      updated(e) = bias(e) + rate * (a.flag("center") ? sign(e) - mean : sign(e));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator expert_bias_update = describe<ExpertBiasUpdate>();
}

}  // namespace assay
