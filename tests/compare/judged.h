#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "assay/compare/pairs/judge.h"
#include "memory_dump.h"
#include "not_a_number.h"

namespace assay {

/// What the judge is told; the policy lives here.
struct Given {
  Policy policy = load_policy("telechat3");
  Expectation e;

  explicit Given(std::string_view name = "telechat3") : policy(load_policy(name)) {}
  explicit Given(Policy p) : policy(std::move(p)) {}
  Given& dtype(DType d) {
    e.row_dtype = d;
    return *this;
  }
  Given& count(std::int64_t n) {
    e.count = n;
    return *this;
  }
  Finding judge(const Tensor& actual, const Tensor& reference) {
    e.policy = &policy;
    Finding f;
    assay::judge(f, actual, reference, e);
    return f;
  }
};

/// Rows that are powers of two, so that limits are exact: 2^-10 below count 100, 2^-8 from there.
inline Policy powers() {
  const std::string source = "test";
  return {"powers",
          source,
          Rule::atol_rtol,
          {{DType::float32, 0, 0x1p-10, 0x1p-10, source}, {DType::float32, 100, 0x1p-8, 0x1p-8, source}}};
}

}  // namespace assay
