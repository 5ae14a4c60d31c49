#include "assay/compare/calls/scale_of_groups.h"

#include <bit>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "assay/golden/evidence.h"

// Each group has a factor k_g = sum e_i g_i / sum g_i^2 of its own, weighted as in scale_test.cpp. Roundings
// make it a sum of many small errors, independent of those of other groups and as often up as down; how large
// it is in any group need not be known. Their mean over its standard error is Student's t then, or less:
// unequal variances make it conservative at this level (Bakirov and Szekely 2005,
// doi:10.1007/s10958-006-0366-5; of estimates of groups Ibragimov and Mueller 2010,
// doi:10.1198/jbes.2009.08046).
namespace assay {
namespace {

// Small groups are joined to so many of about the same weight: a mean counts all alike, and t of 63 degrees
// is little beyond that of a normal error (10.0, 7.7).
constexpr double most_groups = 64;

struct Group {
  double product = 0, square = 0;  ///< sums of e g / b^2 and g^2 / b^2
  std::uint64_t content = 0;       ///< a hash of golden
};

// What was made from the same numbers was rounded alike: groups with the same golden values are one.
std::vector<Group> groups_of(const ScaleTest& t) {
  std::map<std::int64_t, Group> by_number;
  for (std::size_t i = 0; i < t.golden.size(); ++i) {
    Group& group = by_number[t.apart[i]];
    const double g = t.golden[i], b = t.allowed[i];
    group.content = (std::rotl(group.content, 5) ^ std::bit_cast<std::uint64_t>(g)) * 0x9e3779b97f4a7c15;
    if (!(b > 0) || std::isinf(b)) continue;
    group.product += (t.actual[i] - g) / b * (g / b);
    group.square += g / b * (g / b);
  }
  std::map<std::uint64_t, std::size_t> of_content;
  std::vector<Group> groups;
  for (const auto& [number, group] : by_number) {
    const auto [at, is_new] = of_content.emplace(group.content, groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].product += group.product;
    groups[at->second].square += group.square;
  }
  return groups;
}

std::vector<double> factors_of(const std::vector<Group>& groups) {
  double all = 0;
  for (const Group& group : groups) all += group.square;
  std::vector<double> factors;
  Group joined;
  for (const Group& group : groups) {
    joined.product += group.product;
    joined.square += group.square;
    if (joined.square < all / most_groups) continue;
    factors.push_back(joined.product / joined.square);
    joined = {};
  }
  return factors;  // what is left over is less than one of them
}

}  // namespace

ScaleError scale_of_groups(const ScaleTest& t) {
  const std::vector<double> factors = factors_of(groups_of(t));
  const auto count = static_cast<double>(factors.size());
  ScaleError error{.excess = 0, .allowed = std::numeric_limits<double>::infinity()};
  if (count < 2) return error;
  for (const double factor : factors) error.excess += factor / count;
  double squares = 0;
  for (const double factor : factors) squares += (factor - error.excess) * (factor - error.excess);
  const double probability = 2 * std::exp(-improbable * improbable / 2);  // golden/evidence.h
  const double quantile =
      boost::math::quantile(boost::math::complement(boost::math::students_t(count - 1), probability / 2));
  error.allowed = quantile * std::sqrt(squares / (count - 1) / count);
  return error;
}

}  // namespace assay
