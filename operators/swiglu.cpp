#include "assay/operators/engine/gated.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

struct SwiGlu : Gated {
  static constexpr std::string_view name = "swiglu";
  static constexpr std::string_view math = "y = silu(gate) up p";
  static constexpr std::string_view source =
      "arXiv:2002.05202 eq. 6; gate first and probs p as in Megatron-LM";
  static constexpr std::string_view aliases[] = {"npu_swiglu", "Swiglu", "bias_swiglu_impl",
                                                 "weighted_bias_swiglu_impl", "SwiGLU"};
  static constexpr bool sums_continue = true;
  static constexpr std::string_view functional_inputs[] = {"gate", "up"}, functional_instead[] = {"x"};
  static constexpr Example examples[] = {
      {"N=4,W=10", "", "gate,up,probs"}, {"N=9,C=13", "", "x"}, {"N=2x3,W=6", "", "gate,up"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes&) { bind_halves(name, d, inputs); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    gate_forward(
        t, d, [](const T& x) { return silu(x); }, true);
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    gate_backward(
        t, d, [](const T& x) { return silu(x); }, [](const T& x) { return silu_slope(x); }, true);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator swiglu = describe<SwiGlu>();
}

}  // namespace assay
