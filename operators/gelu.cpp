#include "assay/operators/engine/gelu.h"

#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Gelu {
  static constexpr std::string_view name = "gelu";
  static constexpr std::string_view math =
      "y = x Phi(x); tanh: y = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)); sigmoid: y = x sigmoid(1.702 x)";
  static constexpr std::string_view source = "arXiv:1606.08415";
  static constexpr std::string_view aliases[] = {
      "torch.nn.functional.gelu", "torch.nn.GELU", "npu_gelu", "GeLU", "Gelu", "QuickGELU"};
  static constexpr Attribute attributes[] = {
      {"approximate", "\"none\"", "none: erf; tanh, sigmoid: the approximations"}};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr std::string_view lanes_along = "N";
  static constexpr Example examples[] = {
      {"N=24"}, {"N=3x5", "approximate=\"tanh\""}, {"N=3x5", "approximate=\"sigmoid\""}};
  static constexpr std::string_view functional_inputs[] = {"x"};
  static constexpr Seen seen[] = {{"approximate", "\"tanh\"", "GPT-2, Gemma"},
                                  {"approximate", "\"sigmoid\"", "CLIP (QuickGELU)"}};

  static void bind(Dims&, InputShapes, const Attributes& a) { function<double>(a); }

  template <class T>
  static GeluFunction<T> function(const Attributes& a) {
    return {name, a.text("approximate")};
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_forward(t, d, function<T>(a));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_backward(t, d, [gelu = function<T>(a)](const T& x) { return gelu.slope(x); });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes& a, Proofs& proofs) {
    if (a.text("approximate") == "none") certify_map(Function::gelu, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gelu = describe<Gelu>();
}

}  // namespace assay
