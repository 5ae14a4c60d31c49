#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>

#include "assay/compare/causes/values/elements.h"
#include "assay/compare/causes/values/failing_pair.h"

namespace assay {
namespace {

// Memory that fails does so in one place; what was computed otherwise differs in many: in more than one of
// so many elements.
constexpr std::size_t most_flipped = 4;
constexpr std::int64_t fewest_others = 16;

std::uint64_t stored_bits(const Tensor& one) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, one.bytes().data(), std::min(sizeof bits, size_of(one.dtype())));  // little-endian
  return bits;
}

std::string part_of(DType dtype, int bit) {
  const int sign = static_cast<int>(size_of(dtype)) * 8 - 1;
  if (bit == sign) return "the sign";
  return bit >= format_of(dtype).fraction_bits ? "of the exponent" : "of the fraction";
}

}  // namespace

// Few elements that each differ in one bit, and not one that differs beside them.
void explain_bit(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const DType dtype = pair.actual.dtype();
  // What should be there may be known exactly, in float64.
  if ((dtype != pair.reference.dtype() && pair.reference.dtype() != DType::float64) || !is_float(dtype))
    return;
  std::vector<std::int64_t> places;
  for_each_element(Columns{&pair.actual, &pair.reference}, [&](std::int64_t at, const double* x) {
    if (x[0] != round_to(dtype, x[1]) && places.size() <= most_flipped) places.push_back(at);
  });
  if (places.empty() || places.size() > most_flipped ||
      std::ssize(places) * fewest_others > pair.actual.size())
    return;
  std::string how;
  for (const std::int64_t at : places) {
    const Tensor right = Tensor::from_values(dtype, {1}, std::vector<double>{pair.reference.value(at)});
    const std::uint64_t flipped = stored_bits(pair.actual.window(at, 1)) ^ stored_bits(right);
    if (std::popcount(flipped) != 1) return;
    const int bit = std::countr_zero(flipped);
    how += fmt::format("{}{} at {} has bit {} ({}) flipped: {:.9g} for {:.9g}", how.empty() ? "" : "; ",
                       how.empty() ? "the element" : "that", to_string(unravel(at, pair.actual.shape())), bit,
                       part_of(dtype, bit), pair.actual.value(at), pair.reference.value(at));
  }
  found.push_back({Cause::flipped_bit,
                   {.elements = static_cast<std::int64_t>(places.size()),
                    .of = pair.actual.size(),
                    .positions = places,
                    .how = how + "; every other element is equal"},
                   0});
}

}  // namespace assay
