#include "assay/operators/engine/extremum.h"

namespace assay {
namespace {

struct ReduceMax : Extremum<false> {
  static constexpr std::string_view name = "reduce_max";
  static constexpr std::string_view math = "y = max of x over dim, index = where it is first; NaN wins";
  static constexpr std::string_view source = "torch.max; even ties as torch.amax";
  static constexpr std::string_view aliases[] = {"torch.max", "torch.amax", "amax",
                                                 "npu_max",   "ReduceMax",  "ArgMaxWithValue"};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_ties(d, shape_of_input(inputs, "x"), a, name);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_max = describe<ReduceMax>();
}

}  // namespace assay
