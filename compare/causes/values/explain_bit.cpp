#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "assay/compare/causes/values/elements.h"
#include "assay/compare/causes/values/failing_pair.h"
#include "assay/golden/evidence.h"

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

// Few elements that each differ in one bit from what they may be, among many that are right up to rounding.
// An element meets one of its neighbours by a bit in one of so many.
void explain_bit_of_rounded(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const DType dtype = pair.actual.dtype();
  if (pair.over > static_cast<std::int64_t>(most_flipped) || pair.over * fewest_others > pair.actual.size())
    return;
  const int bits = static_cast<int>(size_of(dtype)) * 8;
  double evidence = 0, residual = 0;
  std::string how;
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i) {
    const std::int64_t at = pair.wrong.at[i];
    const double right = pair.wrong.reference[i], limit = pair.allowed(right, pair.bound(at));
    const Tensor stored = pair.actual.window(at, 1);
    int flipped = -1;
    for (int bit = 0; bit < bits && flipped < 0; ++bit) {
      std::uint64_t pattern = stored_bits(stored) ^ (std::uint64_t{1} << bit);
      std::array<std::byte, sizeof pattern> bytes{};
      std::memcpy(bytes.data(), &pattern, sizeof pattern);
      double value = 0;
      decode(dtype, std::span(bytes).first(size_of(dtype)), std::span(&value, 1));
      if (!(pair.ratio(value, right, pair.bound(at)) <= 1)) continue;
      flipped = bit;
      residual = std::max(residual, pair.ratio(value, right, pair.bound(at)));
    }
    if (flipped < 0 || !(limit > 0)) return;
    evidence += std::log2(std::abs(pair.wrong.actual[i] - right) / limit) - std::log2(bits);
    how += fmt::format("{}the element at {} has bit {} ({}) flipped: {:.9g} for {:.9g}",
                       how.empty() ? "" : "; ", to_string(unravel(at, pair.actual.shape())), flipped,
                       part_of(dtype, flipped), pair.wrong.actual[i], right);
  }
  if (!(evidence >= hint_bits)) return;
  found.push_back({Cause::flipped_bit,
                   {.elements = pair.over,
                    .of = pair.actual.size(),
                    .positions = pair.wrong.at,
                    .evidence = evidence,
                    .how = how + "; every other element is within its rounding"},
                   residual});
}

// Few elements that each differ in one bit, and not one that differs beside them.
bool explain_bit_of_equal(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const DType dtype = pair.actual.dtype();
  // What should be there may be known exactly, in float64.
  if ((dtype != pair.reference.dtype() && pair.reference.dtype() != DType::float64) || !is_float(dtype))
    return false;
  std::vector<std::int64_t> places;
  for_each_element(Columns{&pair.actual, &pair.reference}, [&](std::int64_t at, const double* x) {
    if (x[0] != round_to(dtype, x[1]) && places.size() <= most_flipped) places.push_back(at);
  });
  if (places.empty() || places.size() > most_flipped ||
      std::ssize(places) * fewest_others > pair.actual.size())
    return false;
  std::string how;
  for (const std::int64_t at : places) {
    const Tensor right = Tensor::from_values(dtype, {1}, std::vector<double>{pair.reference.value(at)});
    const std::uint64_t flipped = stored_bits(pair.actual.window(at, 1)) ^ stored_bits(right);
    if (std::popcount(flipped) != 1) return false;
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
  return true;
}

}  // namespace

void explain_bit(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (is_float(pair.actual.dtype()) && pair.over > 0 && !explain_bit_of_equal(pair, found))
    explain_bit_of_rounded(pair, found);
}

}  // namespace assay
