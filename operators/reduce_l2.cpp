#include "assay/operators/engine/l2.h"

namespace assay {
namespace {

struct ReduceL2 : L2<ReduceL2> {
  static constexpr std::string_view name = "reduce_l2";
  static constexpr std::string_view source = "Higham 2002, sec. 6.1";
  static constexpr std::string_view aliases[] = {"ReduceL2"};
  static constexpr std::string_view axes = "dims";
  static constexpr Attribute attributes[] = {{axes, "null", "the dimensions of the norm; null or []: all"},
                                             {"keepdim", "false", "keep them with extent 1"}};
  static constexpr Example examples[] = {
      {"S=3x2x7"}, {"S=5x11", "dims=[1]"}, {"S=2x3x4x2", "dims=[-1,1],keepdim=true"}};
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_l2 = describe<ReduceL2>();
}

}  // namespace assay
