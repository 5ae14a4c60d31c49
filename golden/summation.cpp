#include "assay/golden/summation.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "assay/golden/unrounded.h"

namespace assay {
namespace {

thread_local const Summation* current_summation = nullptr;

constexpr std::size_t tile = 16;

template <class T>
T round_to(const Summation& how, T value) {
  return how.accumulator ? static_cast<T>(round_to(*how.accumulator, static_cast<double>(value))) : value;
}

template <class T>
T sequential(const Summation& how, std::span<const T> terms) {
  T total = 0;
  for (const T term : terms) total = round_to(how, total + term);
  return total;
}

template <class T>
T pairwise(const Summation& how, std::span<const T> terms) {
  if (terms.size() < 2) return sequential(how, terms);
  const std::size_t half = terms.size() / 2;
  return round_to(how, pairwise(how, terms.first(half)) + pairwise(how, terms.subspan(half)));
}

template <class T>
T exact(std::span<const T> terms) {
  UnroundedSum sum(0);
  sum.add(static_cast<std::int64_t>(terms.size()),
          [&](auto i) { return terms[static_cast<std::size_t>(i)]; });
  return static_cast<T>(sum.value().round(std::is_same_v<T, float> ? DType::float32 : DType::float64));
}

template <class T>
T in_order(const Summation& how, std::span<const T> terms) {
  if (how.exact) return exact(terms);
  if (how.order && how.order->terms() == static_cast<std::int64_t>(terms.size())) {
    const DType own = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    const std::vector<double> wide(terms.begin(), terms.end());
    return static_cast<T>(how.order->add_up(wide, how.accumulator.value_or(own), how.fma));
  }
  if (how.pairwise) return pairwise(how, terms);
  if (how.block <= 0) return sequential(how, terms);
  std::vector<T> sums;
  const auto block = static_cast<std::size_t>(how.block);
  for (std::size_t i = 0; i < terms.size(); i += block) {
    sums.push_back(sequential(how, terms.subspan(i, std::min(block, terms.size() - i))));
  }
  return sequential(how, std::span<const T>(sums));
}

// Leaves out the term of the median magnitude among those that count.
template <class T>
void skip_median(std::vector<T>& terms) {
  std::vector<std::size_t> counting;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i] != 0) counting.push_back(i);
  }
  if (counting.size() < 2) return;
  const auto middle = counting.begin() + static_cast<std::ptrdiff_t>(counting.size() / 2);
  std::ranges::nth_element(counting, middle, {}, [&](std::size_t i) { return std::abs(terms[i]); });
  terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(*middle));
}

template <class T>
T faulty(const Summation& how, std::span<const T> terms) {
  std::vector<T> left(terms.begin(), terms.end());
  if (how.drop_tile) left.resize(left.size() - std::min(tile, left.size() / 2));
  if (how.skip_one) skip_median(left);
  return in_order(how, std::span<const T>(left));
}

}  // namespace

SummationScope::SummationScope(const Summation& summation)
    : summation_(summation), outer_(current_summation) {
  current_summation = summation_ == Summation() ? nullptr : &summation_;
}
SummationScope::~SummationScope() {
  current_summation = outer_;
}
const Summation* SummationScope::current() {
  return current_summation;
}

float add_up(const Summation& how, std::span<const float> terms) {
  return faulty(how, terms);
}
double add_up(const Summation& how, std::span<const double> terms) {
  return faulty(how, terms);
}

}  // namespace assay
