#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/result/metrics.h"

namespace assay {

/// Every field with its name, as bits: -0 is not 0, and NaN is NaN.
inline std::vector<std::pair<std::string, std::uint64_t>> named_fields(const Metrics& m) {
  std::vector<std::pair<std::string, std::uint64_t>> fields;
  const auto add = [&](std::string name, auto value) {
    if constexpr (std::is_same_v<decltype(value), double>) {
      fields.emplace_back(std::move(name), std::bit_cast<std::uint64_t>(value));
    } else {
      fields.emplace_back(std::move(name), static_cast<std::uint64_t>(value));
    }
  };
  add("elements", m.elements), add("max_abs", m.max_abs), add("max_abs_at", m.max_abs_at);
  add("max_rel", m.max_rel), add("max_rel_at", m.max_rel_at), add("mean_abs", m.mean_abs);
  add("mean_rel", m.mean_rel), add("rmse", m.rmse), add("relative_l2", m.relative_l2);
  add("one_minus_cosine", m.one_minus_cosine), add("ulp_dtype", m.ulp_dtype);
  add("max_ulp", m.max_ulp), add("max_ulp_at", m.max_ulp_at);
  for (const std::int64_t count : m.ulp_histogram) add("ulp_histogram", count);
  for (const Side& s : {m.actual, m.reference}) {
    add("nan", s.nan), add("infinite", s.infinite), add("zero", s.zero), add("subnormal", s.subnormal);
    add("min", s.min), add("max", s.max), add("mean", s.mean), add("std", s.std);
  }
  add("different_bits", m.different_bits), add("different_bits_at", m.different_bits_at);
  add("special_mismatch", m.special_mismatch), add("special_mismatch_at", m.special_mismatch_at);
  add("overflowed", m.overflowed), add("above", m.above), add("below", m.below);
  add("over", m.over), add("worst_ratio", m.worst_ratio), add("worst_at", m.worst_at);
  return fields;
}

inline std::vector<std::uint64_t> bits_of(const Metrics& m) {
  std::vector<std::uint64_t> bits;
  for (const auto& [name, value] : named_fields(m)) bits.push_back(value);
  return bits;
}

inline void expect_same_bits(const Metrics& m, const Metrics& expected) {
  const auto fields = named_fields(m), wanted = named_fields(expected);
  ASSERT_EQ(fields.size(), wanted.size());
  for (std::size_t i = 0; i < fields.size(); ++i) EXPECT_EQ(fields[i], wanted[i]);
}

}  // namespace assay
