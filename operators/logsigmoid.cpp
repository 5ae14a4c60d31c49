#include "assay/operators/engine/silu.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct LogSigmoid {
  static constexpr std::string_view name = "logsigmoid";
  static constexpr std::string_view math = "y = -log(1 + exp(-x))";
  static constexpr std::string_view source = "torch.nn.functional.logsigmoid";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.logsigmoid", "torch.nn.LogSigmoid",
                                                 "npu_logsigmoid", "LogSigmoid"};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  // min(x, 0) - log1p(exp(-|x|)): no overflow, nothing cancels.
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return minimum(x, T(0)) - log1p(exp(-abs(x))); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) { return sigmoid<T>(-x); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator logsigmoid = describe<LogSigmoid>();
}

}  // namespace assay
