// Whether a diagnosis is one that was expected.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "assay/compare/result/diagnosis.h"

namespace assay {
namespace {

constexpr double four_digits = 5e-4;

bool same_number(double a, double expected) {
  return a == expected || std::abs(a - expected) <= four_digits * std::abs(expected);
}

template <class T>
bool holds(const std::optional<T>& found, const std::optional<T>& expected) {
  if (!expected || !found) return !expected;
  if constexpr (std::is_same_v<T, double>) return same_number(*found, *expected);
  return *found == *expected;
}
bool holds(const std::string& found, const std::string& expected) {
  return expected.empty() || found == expected;
}
bool holds(const std::vector<std::string>& found, const std::vector<std::string>& expected) {
  return expected.empty() || std::ranges::find_first_of(found, expected) != found.end();
}
// Small ones beside large ones have fewer digits.
bool holds(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = 0;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  return expected.empty() || std::ranges::equal(found, expected, [largest](double a, double e) {
           return std::abs(a - e) <= four_digits * largest;
         });
}
bool holds(const std::vector<std::int64_t>& found, const std::vector<std::int64_t>& expected) {
  return expected.empty() || found == expected;
}

}  // namespace

bool agrees(const Diagnosis& d, const Diagnosis& expected) {
  bool all = d.cause == expected.cause;
  for_each_parameter(
      [&](std::string_view, const auto& found, const auto& wanted) { all = all && holds(found, wanted); },
      d.parameters, expected.parameters);
  return all;
}

}  // namespace assay
