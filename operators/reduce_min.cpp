#include "assay/operators/engine/extremum.h"

namespace assay {
namespace {

struct ReduceMin : Extremum<true> {
  static constexpr std::string_view name = "reduce_min";
  static constexpr std::string_view math = "y = min of x over dim, index = where it is first; NaN wins";
  static constexpr std::string_view source = "torch.min; even ties as torch.amin";
  static constexpr std::string_view aliases[] = {"torch.min", "torch.amin", "amin",
                                                 "npu_min",   "ReduceMin",  "ArgMinWithValue"};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_ties(d, shape_of_input(inputs, "x"), a, name);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_min = describe<ReduceMin>();
}

}  // namespace assay
