#include "assay/operators/engine/gated.h"
#include "assay/operators/engine/gelu.h"

namespace assay {
namespace {

struct GeGlu : Gated {
  static constexpr std::string_view name = "geglu";
  static constexpr std::string_view math = "y = gelu(gate) up p";
  static constexpr std::string_view source = "arXiv:2002.05202 eq. 6";
  static constexpr std::string_view aliases[] = {"npu_geglu", "GeGlu", "bias_geglu_impl"};
  // No default where the sources disagree and a wrong half still gives plausible numbers.
  static constexpr Attribute attributes[] = {
      {"approximate", "\"none\"",
       "none: erf; tanh (npu_geglu's default, Megatron's only), sigmoid: the approximations"},
      {"activate_left", "null",
       "which half of x is the gate: true in Megatron and TransformerEngine, false in npu_geglu and "
       "diffusers"}};
  static constexpr std::string_view functional_inputs[] = {"gate", "up"}, functional_instead[] = {"x"};
  static constexpr Seen seen[] = {{"approximate", "\"tanh\"", "npu_geglu by default, Megatron-LM"}};
  static constexpr Example examples[] = {
      {"N=4,W=10", "activate_left=true", "gate,up,probs"},
      {"N=9,C=13", "approximate=\"tanh\"", "x"},
      {"N=2x3,W=6", "activate_left=false,approximate=\"tanh\"", "gate,up"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    function<double>(a);
    if (bind_halves(name, d, inputs) && !a.has("activate_left")) {
      throw Error(
          "geglu: which half of x is the gate is not set; expected activate_left true (Megatron) or false "
          "(npu_geglu, diffusers), or gate and up apart");
    }
  }

  template <class T>
  static GeluFunction<T> function(const Attributes& a) {
    return {name, a.text("approximate")};
  }
  static bool gate_first(const Attributes& a) { return !a.has("activate_left") || a.flag("activate_left"); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    gate_forward(t, d, function<T>(a), gate_first(a));
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const GeluFunction<T> gelu = function<T>(a);
    gate_backward(
        t, d, gelu, [&](const T& x) { return gelu.slope(x); }, gate_first(a));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator geglu = describe<GeGlu>();
}

}  // namespace assay
