#include "assay/operators/engine/extremum.h"

namespace assay {
namespace {

struct ArgMax : ExtremumPosition<false> {
  static constexpr std::string_view name = "argmax";
  static constexpr std::string_view math = "index = where the maximum of x over dim is first; NaN wins";
  static constexpr std::string_view source = "torch.argmax; select_last_index as in ONNX ArgMax";
  static constexpr std::string_view aliases[] = {"torch.argmax", "ArgMax", "Argmax", "ops.argmax"};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_extremum(d, shape_of_input(inputs, "x"), a, name, true);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator argmax = describe<ArgMax>();
}

}  // namespace assay
