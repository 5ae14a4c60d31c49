#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

struct Bound;

/// The order in which a device adds up the n terms of a sum: a tree of additions. One of more than two
/// operands adds them at once, as a matrix unit does. The first operand of an addition is the one that is
/// there already: an FMA does not round the product that it adds to it.
class SumOrder {
 public:
  /// Below terms(): a term; else what the addition terms() less gives, which comes before.
  using Operand = std::int64_t;
  using Addition = std::vector<Operand>;

  /// @throws Error  if not every term and every addition but the last is an operand once
  SumOrder(std::int64_t terms, std::vector<Addition> additions);

  /// What text() gives: terms by their numbers, `0+1+2` from left to right, `(..)` a sum within, `{..}` what
  /// is added at once, `0..6` and `0..6:2` terms one by one. Throws Error.
  static SumOrder parse(std::string_view);
  std::string text() const;
  /// In words, where it has a name: "8 lanes (term i in lane i mod 8), each ..".
  std::string describe() const;

  std::int64_t terms() const { return terms_; }
  const std::vector<Addition>& additions() const { return additions_; }
  bool is_binary() const;
  /// The most additions that a term goes through.
  std::int64_t depth() const;

  /// The bits of a device whose accumulator is this format of IEEE 754: every addition is rounded once.
  /// @param terms   products are exact
  /// @param is_fma  products are rounded only where they are the first operand
  double add_up(std::span<const double> terms, DType accumulator, bool is_fma) const;

  /// What the additions may lose, each of them u of its result: the running error of Higham 2002, sec. 3.3,
  /// along this tree.
  struct Loss {
    double guaranteed = 0;
    double squares = 0;  ///< sum of the squares of all results
    double alike = 0;    ///< what rounding to nearest loses here; one sign within each binade of the results
  };
  /// @param u  of the accumulator; an addition of more than two operands is cut (accumulator.h, fused), each
  ///           operand to 2 u of the largest
  Loss loss(std::span<const Bound> terms, double u) const;

  bool operator==(const SumOrder&) const = default;

 private:
  std::int64_t terms_;
  std::vector<Addition> additions_;
};

}  // namespace assay
