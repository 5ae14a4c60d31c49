#include "assay/operators/engine/larger_smaller.h"

namespace assay {
namespace {

struct Maximum : LargerSmaller<true> {
  static constexpr std::string_view name = "maximum";
  static constexpr std::string_view math = "y = the larger of a and b, NaN if either is";
  static constexpr std::string_view source = "torch.maximum";
  static constexpr std::string_view aliases[] = {"torch.maximum", "Maximum", "Max", "max"};
};

}  // namespace

namespace ops {
extern constexpr Operator maximum = describe<Maximum>();
}

}  // namespace assay
