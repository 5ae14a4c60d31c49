#include "assay/operators/engine/larger_smaller.h"

namespace assay {
namespace {

struct Minimum : LargerSmaller<false> {
  static constexpr std::string_view name = "minimum";
  static constexpr std::string_view math = "y = the smaller of a and b, NaN if either is";
  static constexpr std::string_view source = "torch.minimum";
  static constexpr std::string_view aliases[] = {"torch.minimum", "Minimum", "Min", "min"};
};

}  // namespace

namespace ops {
extern constexpr Operator minimum = describe<Minimum>();
}

}  // namespace assay
