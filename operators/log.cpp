#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Log {
  static constexpr std::string_view name = "log";
  static constexpr std::string_view math = "y = log(x)";
  static constexpr std::string_view source = "torch.log";
  static constexpr std::string_view aliases[] = {"torch.log", "Log"};
  // Below 2^-126 a device may flush x to 0.
  static constexpr auto args = unary_args(.25, 4, {0, 0x1.fffffep127, 0x1p-126});
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return log(x); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) { return g / x; });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::log, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator log = describe<Log>();
}

}  // namespace assay
