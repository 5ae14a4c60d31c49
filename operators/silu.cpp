#include "assay/operators/engine/silu.h"

#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Silu {
  static constexpr std::string_view name = "silu";
  static constexpr std::string_view math = "y = x / (1 + exp(-x))";
  static constexpr std::string_view source = "arXiv:1606.08415 sec. 2";
  static constexpr std::string_view aliases[] = {
      "torch.nn.functional.silu", "torch.nn.SiLU", "swish", "npu_silu", "SiLU", "Swish"};
  static constexpr auto args = unary_args(-16, 16);
  static constexpr std::string_view lanes_along = "N";
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr std::string_view functional_inputs[] = {"x"};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return silu<T>(x); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) { return silu_slope<T>(x); });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::silu, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator silu = describe<Silu>();
}

}  // namespace assay
