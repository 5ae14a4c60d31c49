#include "assay/operators/engine/l2.h"

namespace assay {
namespace {

struct L2Norm : L2<L2Norm> {
  static constexpr std::string_view name = "l2_norm";
  static constexpr std::string_view source = "torch.linalg.vector_norm";
  static constexpr std::string_view aliases[] = {"torch.linalg.vector_norm"};
  static constexpr std::string_view axes = "dim";
  static constexpr Attribute attributes[] = {{axes, "null", "the dimensions of the norm; null or []: all"},
                                             {"keepdim", "false", "keep them with extent 1"}};
  static constexpr bool sums_of_rows = true;
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x11", "dim=1"}, {"S=2x3x4x2", "dim=[-1,1],keepdim=true"}};
};

}  // namespace

namespace ops {
extern constexpr Operator l2_norm = describe<L2Norm>();
}

}  // namespace assay
