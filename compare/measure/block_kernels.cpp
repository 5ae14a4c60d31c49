#include "assay/compare/measure/block_kernels.h"

#include <limits>

#include "assay/compare/measure/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/compare/measure/block_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "assay/compare/measure/block_errors-inl.h"
#include "assay/compare/measure/block_ulps-inl.h"
#include "assay/compare/measure/bound_errors-inl.h"

#if HWY_ONCE
namespace assay {

HWY_EXPORT(count_values_on);
HWY_EXPORT(different_elements_on);
HWY_EXPORT(subtract_on);
HWY_EXPORT(allowed_errors_on);
HWY_EXPORT(add_errors_on);
HWY_EXPORT(squares_about_on);
HWY_EXPORT(weigh_errors_on);
HWY_EXPORT(sides_of_bound_on);
HWY_EXPORT(count_inside_on);
HWY_EXPORT(subtract_ordinals_on);
HWY_EXPORT(whole_distances_on);
HWY_EXPORT(to_bit_widths_on);

ValueCounts count_values(std::span<const double> values, double normal) {
  return HWY_DYNAMIC_DISPATCH(count_values_on)(values, normal);
}
std::int64_t different_elements(std::span<const std::byte> actual, std::span<const std::byte> reference,
                                std::size_t size) {
  return HWY_DYNAMIC_DISPATCH(different_elements_on)(actual, reference, size);
}
void subtract(std::span<const double> actual, std::span<const double> reference, double* difference) {
  HWY_DYNAMIC_DISPATCH(subtract_on)(actual, reference, difference);
}
void allowed_errors(std::span<const double> reference, double atol, double rtol, double* limit) {
  HWY_DYNAMIC_DISPATCH(allowed_errors_on)(reference, atol, rtol, limit);
}
ErrorTotals add_errors(const ErrorArrays& arrays) {
  return HWY_DYNAMIC_DISPATCH(add_errors_on)(arrays);
}
double squares_about(double mean, std::span<const double> values) {
  return HWY_DYNAMIC_DISPATCH(squares_about_on)(mean, values);
}
bool weigh_errors(std::span<const double> actual, std::span<const double> golden,
                  std::span<const double> direction, std::span<const double> allowed, double* squares,
                  double* products) {
  return HWY_DYNAMIC_DISPATCH(weigh_errors_on)(actual, golden, direction, allowed, squares, products);
}
BoundSides sides_of_bound(std::span<const double> actual, std::span<const double> golden,
                          std::span<const double> bound) {
  return HWY_DYNAMIC_DISPATCH(sides_of_bound_on)(actual, golden, bound);
}
std::int64_t count_inside(std::span<const double> values, double least, double low, double high) {
  return HWY_DYNAMIC_DISPATCH(count_inside_on)(values, least, low, high);
}
std::uint64_t subtract_ordinals(DType unit, std::span<const double> actual, std::span<const double> reference,
                                std::uint64_t* ulps) {
  return HWY_DYNAMIC_DISPATCH(subtract_ordinals_on)(unit, actual, reference, ulps);
}
std::uint64_t whole_distances(std::span<const double> difference, std::uint64_t* ulps) {
  return HWY_DYNAMIC_DISPATCH(whole_distances_on)(difference, ulps);
}
void to_bit_widths(std::span<std::uint64_t> numbers) {
  HWY_DYNAMIC_DISPATCH(to_bit_widths_on)(numbers);
}

double error_ratio(double error, double limit) {
  if (!(limit > 0)) return error <= limit ? 0 : std::numeric_limits<double>::infinity();
  const double ratio = error / limit;
  return ratio > 0 ? ratio : 0;  // infinity / infinity
}

}  // namespace assay
#endif  // HWY_ONCE
