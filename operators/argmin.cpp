#include "assay/operators/engine/extremum.h"

namespace assay {
namespace {

struct ArgMin : ExtremumPosition<true> {
  static constexpr std::string_view name = "argmin";
  static constexpr std::string_view math = "index = where the minimum of x over dim is first; NaN wins";
  static constexpr std::string_view source = "torch.argmin; select_last_index as in ONNX ArgMin";
  static constexpr std::string_view aliases[] = {"torch.argmin", "ArgMin", "Argmin", "ops.argmin"};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_extremum(d, shape_of_input(inputs, "x"), a, name, true);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator argmin = describe<ArgMin>();
}

}  // namespace assay
