#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/golden/dtype.h"
#include "assay/golden/sum_order.h"

/// The order in which a kernel adds, found by asking it for sums (FPRev: Xie et al., arXiv:2411.00442).
namespace assay {

/// The terms of a sum: x[i], or x[i] y[i].
struct SumQuestion {
  std::vector<double> x, y;  ///< y is empty where terms are no products
};
/// For each question the elements that the kernel made of it, alike where it adds up all in one order.
struct SumAnswers {
  DType dtype = DType::float32;
  std::vector<std::vector<double>> elements;
};
using AskKernel = std::function<SumAnswers(std::span<const SumQuestion>)>;

struct KernelUnderQuestion {
  std::int64_t terms = 0;
  DType dtype = DType::float32;  ///< of x and y
  bool has_products = false;
  std::size_t most_questions = 256;  ///< at once
};

struct RevealedOrder {
  enum class Products : std::uint8_t {
    none,
    exact,    ///< the accumulator holds all their digits
    rounded,  ///< before they are added
    fused,    ///< FMA: only where they are the first operand of an addition
    unknown,
  };

  RevealedOrder(SumOrder found, DType of_terms) : order(std::move(found)), dtype(of_terms) {}

  SumOrder order;
  DType dtype, result = DType::float32;
  std::optional<int> accumulator_bits;  ///< significant bits of a partial sum; nothing: two terms tell none
  DType accumulator = DType::float32;   ///< the widest format that has no more
  Products products = Products::none;
  /// Sums of random terms had every bit of IEEE 754 additions in this order.
  bool is_bitwise = false;
  std::string note;  ///< why not; "" if they had
  std::int64_t questions = 0;

  /// What parse_accumulator reads: "float32,bitwise,fma,order=0..255".
  std::string accumulator_text() const;
  /// For people: some lines.
  std::string text() const;
  /// All of it; what parse_accumulator reads are its "accumulator" and ",order=" and its "order".
  std::string json() const;
};
std::string_view name(RevealedOrder::Products);

/// @throws Error  where answers contradict: no sum of all terms, none that is repeatable, no tree; and where
///                nothing is lost, so that there is no order
RevealedOrder reveal_order(const KernelUnderQuestion&, const AskKernel&);

}  // namespace assay
