#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "assay/golden/dtype.h"
#include "assay/golden/evidence.h"

namespace assay {

struct Bound;
struct ErrorModel;
class SumOrder;

/// How a device adds up the terms of one sum.
struct Accumulator {
  /// `any`: not known. `blocked`: `block` terms at a time, then the blocks' sums, both one after the other.
  /// `tree`: pairwise.
  enum class Order : std::uint8_t { any, blocked, tree };

  DType dtype = DType::float32;    ///< of partial sums; of a matrix unit, of its result
  double unit_roundoff = 0x1p-24;  ///< of one addition
  bool truncates = false;          ///< additions are cut, not rounded: twice the error, all to one side
  Order order = Order::any;
  std::int64_t block = 1;
  /// The guaranteed bound alone. Else, where roundings are independent, what they add up to but for one sum
  /// in 4e13 may be less.
  bool worst_case = false;

  /// A matrix unit: so many products and the running sum are shifted to the largest exponent among them, each
  /// cut to `fraction_bits`, and added exactly; 0: none. `result_bits` are left of each such sum.
  std::int64_t fused = 0;
  int fraction_bits = 0;
  int result_bits = 23;
  /// After so many terms the running sum is added to one in float32 and starts again from 0; 0: never.
  std::int64_t promote = 0;

  /// Of sums of as many terms as it has; others are added in any order. May be null.
  std::shared_ptr<const SumOrder> terms_in_order = {};
  bool bitwise = false;  ///< its additions are IEEE 754's: a sum in this order has known bits
  bool fma = false;      ///< a product is rounded only where it is the first operand of an addition
};

/// "float32", "bfloat16,tree", "float32,block=128", "float32,worst", "hopper-fp8,promote=128",
/// "float32,bitwise,fma,order=0..15+(16..31)": a dtype or a matrix unit, then what is known of it. Throws
/// Error that lists both.
Accumulator parse_accumulator(std::string_view);
/// The same for reports, an order in words.
std::string accumulator_in_words(std::string_view);
/// The same without `order` and what goes with it.
std::string accumulator_in_any_order(std::string_view);

/// No more than what accumulate() allows the additions of n terms in a format of that u, from their sum and
/// that of their squares alone. The magnitudes of terms add up to no less than the root of their squares.
double least_loss(std::int64_t terms, double value, double term_squares, double u);
/// What of it depends on the number of terms alone.
struct LossOfTerms {
  double terms, unit_roundoff;
  bool averages_out;  ///< the losses of so many have the root below, if that is less
  double of_root;     ///< of the sum of the squares of the partial sums
};
LossOfTerms loss_of_terms(std::int64_t terms, double u);

/// The sum of the terms as this device may have it: its error is what the terms bring along and what the
/// additions may add. A matrix unit takes the terms in their order.
Bound accumulate(const ErrorModel&, std::span<const Bound> terms);

}  // namespace assay
