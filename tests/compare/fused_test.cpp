// The vector path of measure() against the plainest loops over float64 values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "assay/compare/measure/measure.h"
#include "instruction_sets.h"
#include "metrics_bits.h"

namespace assay::fused_test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;

Tensor tensor_of(DType dtype, const Values& values) {
  return Tensor::from_values(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

// What the header says, element by element.
Metrics plainly(const Tensor& actual, const Tensor& reference, const Allowed& allowed) {
  Metrics m;
  m.elements = actual.size();
  m.ulp_dtype = coarser(actual.dtype(), reference.dtype());
  const auto keep = [](double& best, std::int64_t& best_at, double x, std::int64_t at) {
    if (best_at < 0 || x > best) best = x, best_at = at;
  };
  const auto ordinal = [&](double x) {
    const std::uint64_t code = encode(m.ulp_dtype, x),
                        sign = std::uint64_t{1} << (8 * size_of(m.ulp_dtype) - 1);
    return (code & sign) != 0 ? -static_cast<std::int64_t>(code - sign) : static_cast<std::int64_t>(code);
  };
  long double abs = 0, square = 0, relative = 0, aa = 0, rr = 0, a_sum = 0, r_sum = 0, a_off = 0, r_off = 0;
  std::int64_t n = 0, relatives = 0;
  const auto side = [](Side& s, const FloatFormat& format, double v) {
    s.nan += std::isnan(v), s.infinite += std::isinf(v), s.zero += v == 0;
    s.subnormal += v != 0 && std::abs(v) < std::ldexp(1, format.min_exponent());
    if (std::isnan(v)) return;
    s.min = std::min(s.min, v);
    s.max = std::max(s.max, v);
  };
  for (Side* s : {&m.actual, &m.reference}) s->min = infinity, s->max = -infinity;
  m.ulp_histogram.resize(65);
  for (std::int64_t i = 0; i < m.elements; ++i) {
    const double a = actual.value(i), r = reference.value(i), error = std::abs(a - r);
    side(m.actual, format_of(actual.dtype()), a);
    side(m.reference, format_of(reference.dtype()), r);
    const bool equal = a == r || (std::isnan(a) && std::isnan(r));
    const bool same_bits =
        actual.dtype() != reference.dtype() ? equal : encode(actual.dtype(), a) == encode(actual.dtype(), r);
    if (!same_bits && m.different_bits++ == 0) m.different_bits_at = i;
    if (!std::isfinite(a) || !std::isfinite(r)) {
      const bool overflow = std::isinf(a) && std::isfinite(r) && round_to(actual.dtype(), r) == a;
      m.overflowed += overflow;
      if (!equal && !overflow) {
        if (m.special_mismatch++ == 0) m.special_mismatch_at = i;
        ++m.over;
      } else {
        ++m.ulp_histogram[0];
      }
      keep(m.worst_ratio, m.worst_at, equal || overflow ? 0 : infinity, i);
      continue;
    }
    ++n;
    m.above += a > r, m.below += a < r;
    const double limit = allowed.atol + allowed.rtol * std::abs(r);
    m.over += error <= limit ? 0 : 1;
    keep(m.worst_ratio, m.worst_at, error == 0 ? 0 : error / limit, i);
    keep(m.max_abs, m.max_abs_at, error, i);
    if (r != 0) {
      ++relatives;
      relative += error / std::abs(r);
      keep(m.max_rel, m.max_rel_at, error / std::abs(r), i);
    }
    const auto x = static_cast<std::uint64_t>(ordinal(a)), y = static_cast<std::uint64_t>(ordinal(r));
    const std::uint64_t ulp = ordinal(a) > ordinal(r) ? x - y : y - x;
    ++m.ulp_histogram[static_cast<std::size_t>(std::bit_width(ulp))];
    if (m.max_ulp_at < 0 || ulp > m.max_ulp) m.max_ulp = ulp, m.max_ulp_at = i;
    const long double d = static_cast<long double>(a) - r;
    abs += std::abs(d), square += d * d, a_sum += a, r_sum += r;
    aa += static_cast<long double>(a) * a, rr += static_cast<long double>(r) * r;
  }
  while (!m.ulp_histogram.empty() && m.ulp_histogram.back() == 0) m.ulp_histogram.pop_back();
  for (Side* s : {&m.actual, &m.reference}) {
    if (s->nan == m.elements) s->min = s->max = 0;
    s->min += 0, s->max += 0;  // no -0
  }
  if (n == 0) return m;
  for (std::int64_t i = 0; i < m.elements; ++i) {
    const long double a = actual.value(i), r = reference.value(i);
    if (!std::isfinite(a) || !std::isfinite(r)) continue;
    a_off += (a - a_sum / n) * (a - a_sum / n), r_off += (r - r_sum / n) * (r - r_sum / n);
  }
  const auto number = [](long double x) { return static_cast<double>(x); };
  m.mean_abs = number(abs / n), m.rmse = number(std::sqrt(square / n));
  m.mean_rel = relatives == 0 ? 0 : number(relative / relatives);
  m.relative_l2 = square == 0 ? 0 : number(std::sqrt(square / rr));
  m.actual.mean = number(a_sum / n), m.reference.mean = number(r_sum / n);
  m.actual.std = number(std::sqrt(a_off / n)), m.reference.std = number(std::sqrt(r_off / n));
  return m;
}

void expect_near(double value, double target, double scale, const char* what) {
  if (!std::isfinite(target)) {
    EXPECT_EQ(value, target) << what;
  } else {
    EXPECT_NEAR(value, target, 0x1p-20 * scale) << what;
  }
}

void expect_equal(const Metrics& m, const Metrics& expected) {
  Metrics same = m;  // but for the sums
  for (auto [to, from] :
       {std::pair(&same.actual, &expected.actual), std::pair(&same.reference, &expected.reference)}) {
    expect_near(to->mean, from->mean, from->std + std::abs(from->mean) * 0x1p-30, "mean");
    expect_near(to->std, from->std, from->std, "std");
    to->mean = from->mean, to->std = from->std;
  }
  for (const auto field : {&Metrics::mean_abs, &Metrics::mean_rel, &Metrics::rmse, &Metrics::relative_l2}) {
    expect_near(same.*field, expected.*field, expected.*field, "sum");
    same.*field = expected.*field;
  }
  same.one_minus_cosine = expected.one_minus_cosine;
  expect_same_bits(same, expected);
}

// A pair of every kind of trouble; `seed` picks the elements.
struct Kind {
  const char* name;
  std::function<void(Values& a, Values& r, std::mt19937_64&)> make;
};

double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-52 - 1;
}

const Kind kinds[] = {
    {"noise",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i)
         r[i] = uniform(random), a[i] = r[i] * (1 + 1e-3 * uniform(random));
     }},
    {"equal",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) a[i] = r[i] = uniform(random);
     }},
    {"wide range",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) {
         r[i] = std::ldexp(uniform(random), static_cast<int>(random() % 240) - 140);
         a[i] = random() % 4 == 0 ? uniform(random) : r[i] * (1 + 1e-2 * uniform(random));
       }
     }},
    {"ties",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) {
         r[i] = static_cast<double>(random() % 9) - 4;
         a[i] = r[i] + static_cast<double>(random() % 3) * 0.25;
       }
     }},
    {"one unit off",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) {
         r[i] = 1 + static_cast<double>(random() % 4) / 4;
         a[i] = r[i] + (random() % 4 == 0 ? 0.25 : 0);
       }
     }},
    {"zeros on one side, subnormal numbers",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) {
         r[i] = std::ldexp(1 + std::abs(uniform(random)), -static_cast<int>(random() % 24));
         a[i] = random() % 50 == 0 ? 0.0 : random() % 50 == 0 ? -0.0 : r[i] * (1 + 1e-2 * uniform(random));
       }
     }},
    {"zeros of both signs",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) {
         r[i] = random() % 2 == 0 ? 0.0 : -0.0;
         a[i] = random() % 3 == 0 ? -0.0 : random() % 50 == 0 ? uniform(random) : 0.0;
       }
     }},
    {"specials",
     [](Values& a, Values& r, std::mt19937_64& random) {
       const double special[] = {nan, infinity, -infinity, 0.0, 3.4e38, 1.0};
       for (std::size_t i = 0; i < a.size(); ++i) {
         r[i] = uniform(random), a[i] = r[i] * (1 + 1e-3 * uniform(random));
         const bool edge = i == 0 || i + 1 == a.size() || i % 256 == 255;
         if (edge || random() % 16 == 0) a[i] = r[i] = special[random() % 6];
         if (random() % 200 == 0) a[i] = special[random() % 6];
       }
     }},
    {"masks",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) a[i] = r[i] = random() % 2 == 0 ? -infinity : 0.0;
     }},
    {"huge masks",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i) {
         a[i] = r[i] = random() % 2 == 0 ? -3.3e38 : 0.0;
         if (random() % 64 == 0) a[i] = 1e-3;
       }
     }},
    {"tiny",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i)
         r[i] = 1e-30 * uniform(random), a[i] = r[i] * (1 + 1e-3 * uniform(random));
     }},
    {"far from zero",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i)
         r[i] = 1000 + uniform(random), a[i] = r[i] + 0.1 * uniform(random);
     }},
    {"negative",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i)
         r[i] = -1 - std::abs(uniform(random)), a[i] = r[i] * (1 + 1e-2 * uniform(random));
     }},
    {"other signs",
     [](Values& a, Values& r, std::mt19937_64& random) {
       for (std::size_t i = 0; i < a.size(); ++i)
         r[i] = uniform(random), a[i] = random() % 40 == 0 ? uniform(random) : r[i];
     }},
    {"constant",
     [](Values& a, Values& r, std::mt19937_64&) {
       std::fill(a.begin(), a.end(), 1.5), std::fill(r.begin(), r.end(), 1.25);
     }},
};

const DType floats[] = {DType::float64,  DType::float32,       DType::float16,
                        DType::bfloat16, DType::float8_e4m3fn, DType::float8_e5m2};
const Allowed tolerances[] = {{0, 0, {}}, {1e-3, 1e-3, {}}, {0.25, 0, {}}, {0, 1e-3, {}}, {1e-6, 1e-5, {}}};

TEST(Fused, IsThePlainLoop) {
  std::mt19937_64 random(3);
  const std::size_t sizes[] = {0, 1, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 9000, 65537};
  for (const DType left : floats) {
    for (const DType right : floats) {
      for (const Kind& kind : kinds) {
        const bool quick = left == right || size_of(left) + size_of(right) == 6;
        for (int k = 0; k < (quick ? 3 : 1); ++k) {
          const std::size_t size = sizes[random() % std::size(sizes)];
          Values a(size), r(size);
          kind.make(a, r, random);
          const Tensor actual = tensor_of(left, a), reference = tensor_of(right, r);
          const Allowed& allowed = tolerances[random() % std::size(tolerances)];
          SCOPED_TRACE(testing::Message()
                       << name(left) << " against " << name(right) << ", " << kind.name << ", " << size
                       << " elements, atol " << allowed.atol << " rtol " << allowed.rtol);
          expect_equal(measure(actual, reference, allowed), plainly(actual, reference, allowed));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Fused, GivesTheSameBitsOnEveryInstructionSetAndForAnyNumberOfThreads) {
  std::mt19937_64 random(4);
  for (const auto& [left, right] :
       {std::pair(DType::float32, DType::float32), std::pair(DType::bfloat16, DType::bfloat16),
        std::pair(DType::float16, DType::float16), std::pair(DType::float32, DType::bfloat16),
        std::pair(DType::bfloat16, DType::float32)}) {
    for (const Kind& kind : kinds) {
      Values a(270'007), r(a.size());  // four chunks of 65,536 and a rest
      kind.make(a, r, random);
      const Tensor actual = tensor_of(left, a), reference = tensor_of(right, r);
      const Allowed& allowed = tolerances[random() % std::size(tolerances)];
      const Metrics one = measure(actual, reference, allowed, 1);
      for (const int threads : {2, 3, 4, 5}) {
        SCOPED_TRACE(testing::Message() << kind.name << ", threads " << threads);
        expect_same_bits(measure(actual, reference, allowed, threads), one);
      }
      for_each_instruction_set([&](const char* set) {
        SCOPED_TRACE(testing::Message() << kind.name << ", " << set);
        expect_same_bits(measure(actual, reference, allowed, 2), one);
      });
    }
  }
}

}  // namespace
}  // namespace assay::fused_test
