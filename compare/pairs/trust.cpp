#include "assay/compare/pairs/trust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "assay/compare/measure/block_kernels.h"

namespace assay {
namespace {

// The root of a sum of squares that neither overflow nor vanish (Higham 2002, sec. 27.8).
class Norm {
 public:
  void add(double x) {
    x = std::abs(x);
    if (x > largest_) {
      sum_ = 1 + sum_ * (largest_ / x) * (largest_ / x);
      largest_ = x;
    } else if (x > 0) {
      sum_ += (x / largest_) * (x / largest_);
    }
  }
  double value() const { return largest_ * std::sqrt(sum_); }

 private:
  double largest_ = 0, sum_ = 0;
};

}  // namespace

bool judge_finite(Finding& f) {
  const Metrics& m = *f.metrics;
  if (m.elements == 0 || m.reference.nan < m.elements) return true;
  f.verdict = Verdict::mistrusted;
  f.reason = "no element is a number on both sides: nothing was judged";
  return false;
}

void judge_row_trust(Finding& f, const TensorSource& actual, const TensorSource& reference, const Row& row) {
  const Metrics& m = *f.metrics;
  const double largest = std::max(std::abs(m.reference.min), std::abs(m.reference.max));
  const bool sees_some = row.atol + row.rtol * largest < largest;
  if (m.different_bits == 0 || (sees_some && m.relative_l2 <= row.rtol && m.relative_l2 < 1)) return;
  Norm hidden_errors, all;
  std::int64_t blind = 0, finite = 0;
  actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values(), r = reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < r.size(); ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(r[i])) continue;
      ++finite;
      all.add(r[i]);
      if (row.atol + row.rtol * std::abs(r[i]) < std::abs(r[i])) continue;
      ++blind;
      hidden_errors.add(a[i] - r[i]);
    }
  });
  const double hidden = hidden_errors.value(), norm = all.value();
  // Zeros have hidden == norm: they never pass, however generous the table.
  if (hidden == 0 || (hidden <= row.rtol * norm && hidden < norm)) {
    if (blind != finite) return;
    for (std::string* text : {&f.rule, &f.row}) *text += "; all below it: by relative L2";
    return;
  }
  f.verdict = Verdict::mistrusted;
  f.reason = fmt::format(
      "{} of {} values are below their allowed error, and their errors make a relative L2 of {:.2g}, over "
      "{:g}",
      blind, m.elements, hidden / norm, row.rtol);
}

BoundTrust::BoundTrust(std::span<const double> actual, std::span<const double> golden,
                       std::span<const double> bound) {
  const BoundSides any = sides_of_bound(actual, golden, bound);
  zeros_pass = !any.above;
  only_zeros = !any.nonzero;
  unbounded = any.unbounded;
}

void BoundTrust::add(const BoundTrust& other) {
  zeros_pass = zeros_pass && other.zeros_pass;
  only_zeros = only_zeros && other.only_zeros;
  unbounded = unbounded || other.unbounded;
}

void judge_bound_trust(Finding& f, const BoundTrust& trust) {
  const Metrics& m = *f.metrics;
  if (m.different_bits == 0) return;
  if (trust.unbounded) {
    f.verdict = Verdict::mistrusted;
    f.reason = "the error bound is infinite where elements differ: it guarantees nothing";
  } else if (trust.zeros_pass && !trust.only_zeros) {
    const std::string text =
        fmt::format("every value is below the allowed error; relative L2 is {:.2g}", m.relative_l2);
    if (m.relative_l2 < 1) {
      f.notes.push_back(text);
    } else {
      f.verdict = Verdict::mistrusted;
      f.reason = text + ", no better than zeros";
    }
  }
}

}  // namespace assay
