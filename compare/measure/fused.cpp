// One pass over a block of a pair, every metric at once. A block is 16 lanes wide whatever the vectors are: a
// step of 256 elements gives each lane 16 terms, added in float32 as the sums of 8 steps are, before they are
// added up in float64. On narrower vectors the step is walked once for each group of lanes.
#include "assay/compare/measure/fused.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "assay/golden/error.h"

#include "assay/compare/measure/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/compare/measure/fused.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "assay/compare/measure/fused_any-inl.h"
#include "assay/compare/measure/fused_wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

// use(Left(), Right()) with the element types of the pair.
template <class Use>
auto with_elements(DType actual, DType reference, Use use) {
  if (actual == DType::float32 && reference == DType::float32) return use(Float32(), Float32());
  if (actual == DType::float32) return use(Float32(), BFloat16());
  if (actual == DType::float16) return use(Float16(), Float16());
  if (reference == DType::float32) return use(BFloat16(), Float32());
  return use(BFloat16(), BFloat16());
}

}  // namespace

HWY_NOINLINE FusedResult fused_regular_on(DType actual, DType reference, const FusedBlock& block) {
  return with_elements(actual, reference, [&](auto left, auto right) HWY_ATTR {
    using Left = decltype(left);
    using Right = decltype(right);
    const bool shifted = block.actual_shift != 0 || block.reference_shift != 0;
    return shifted ? walk<RegularErrors<Left, Right, true>, RegularCodes<Left, Right>>(block)
                   : walk<RegularErrors<Left, Right, false>, RegularCodes<Left, Right>>(block);
  });
}
HWY_NOINLINE FusedResult fused_any_on(DType actual, DType reference, const FusedBlock& block) {
  return with_elements(actual, reference, [&](auto left, auto right) HWY_ATTR {
    using Left = decltype(left);
    using Right = decltype(right);
    return walk<AnyErrors<Left, Right>, AnyCodes<Left, Right>>(block);
  });
}
HWY_NOINLINE WideResult fused_wide_on(DType actual, DType reference, const FusedBlock& block) {
  return with_elements(actual, reference, [&](auto left, auto right) HWY_ATTR {
    return wide<decltype(left), decltype(right)>(block);
  });
}
HWY_NOINLINE ExactErrors fused_errors_on(DType actual, DType reference, const FusedBlock& block) {
  return with_elements(actual, reference, [&](auto left, auto right) HWY_ATTR {
    return exact_errors<decltype(left), decltype(right)>(block);
  });
}
HWY_NOINLINE FusedSide fused_side_on(DType dtype, const FusedBlock& block) {
  return with_elements(dtype, dtype,
                       [&](auto left, auto) HWY_ATTR { return one_side<decltype(left)>(block); });
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(fused_regular_on);
HWY_EXPORT(fused_any_on);
HWY_EXPORT(fused_wide_on);
HWY_EXPORT(fused_errors_on);
HWY_EXPORT(fused_side_on);

bool is_fused(DType actual, DType reference) {
  const auto is = [&](DType a, DType r) { return actual == a && reference == r; };
  return is(DType::float32, DType::float32) || is(DType::bfloat16, DType::bfloat16) ||
         is(DType::float16, DType::float16) || is(DType::float32, DType::bfloat16) ||
         is(DType::bfloat16, DType::float32);
}

FusedResult fused_regular(DType actual, DType reference, const FusedBlock& block) {
  return HWY_DYNAMIC_DISPATCH(fused_regular_on)(actual, reference, block);
}
FusedResult fused_any(DType actual, DType reference, const FusedBlock& block) {
  return HWY_DYNAMIC_DISPATCH(fused_any_on)(actual, reference, block);
}
WideResult fused_wide(DType actual, DType reference, const FusedBlock& block) {
  return HWY_DYNAMIC_DISPATCH(fused_wide_on)(actual, reference, block);
}
ExactErrors fused_errors(DType actual, DType reference, const FusedBlock& block) {
  return HWY_DYNAMIC_DISPATCH(fused_errors_on)(actual, reference, block);
}
FusedSide fused_side(DType dtype, const FusedBlock& block) {
  return HWY_DYNAMIC_DISPATCH(fused_side_on)(dtype, block);
}

}  // namespace assay
#endif  // HWY_ONCE
