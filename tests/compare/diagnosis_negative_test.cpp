#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "faulty_pair.h"

namespace assay::diagnosis_negative_test {
namespace {

// What has no explanation must get none. Each case is run with many seeds, shapes and dtypes.
using Fault = std::function<std::pair<Values, Values>(Random&, std::int64_t size)>;

Values changed(Values v, const std::function<double(double)>& f) {
  for (double& x : v) x = f(x);
  return v;
}

const std::pair<const char*, Fault> faults[] = {
    {"relative noise",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       return std::pair(changed(r, [&](double x) { return x * (1 + 5e-2 * random.normal()); }), r);
     }},
    {"additive noise",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       return std::pair(changed(r, [&](double x) { return x + 0.1 * random.normal(); }), r);
     }},
    {"some elements by factors of their own",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       return std::pair(
           changed(r, [&](double x) { return random.uniform() < 0.05 ? (2 + 8 * random.uniform()) * x : x; }),
           r);
     }},
    {"unrelated", [](Random& random, auto n) { return std::pair(random.normals(n), random.normals(n)); }},
    {"unrelated, positive",
     [](Random& random, auto n) {
       return std::pair(changed(random.normals(n), [](double x) { return std::exp(x); }),
                        changed(random.normals(n), [](double x) { return std::exp(x); }));
     }},
    {"nearly constant",
     [](Random& random, auto n) {
       const double c = 1 + random.uniform(), d = 1 + random.uniform();
       return std::pair(changed(random.normals(n), [c](double x) { return c + 1e-6 * x; }),
                        changed(random.normals(n), [d](double x) { return d + 1e-6 * x; }));
     }},
    {"sparse",
     [](Random& random, auto n) {
       const auto sparse = [&](double x) { return random.uniform() < 0.05 ? x : 0; };
       Values a = changed(random.normals(n), sparse), r = changed(random.normals(n), sparse);
       a[0] = 1, r[0] = 0;
       return std::pair(a, r);
     }},
    {"one-hot",
     [](Random& random, auto n) {
       Values a(static_cast<std::size_t>(n)), r(a.size());
       a[static_cast<std::size_t>(random.below(n))] = 1;
       r[static_cast<std::size_t>(random.below(n))] = 1;
       return std::pair(a, r);
     }},
    {"one-hot rows of 16",
     [](Random& random, auto n) {
       Values a(static_cast<std::size_t>(n)), r(a.size());
       for (std::int64_t i = 0; i + 16 <= n; i += 16) {
         a[static_cast<std::size_t>(i + random.below(16))] = 1;
         r[static_cast<std::size_t>(i + random.below(16))] = 1;
       }
       return std::pair(a, r);
     }},
    {"sorted",
     [](Random& random, auto n) {
       Values a = random.normals(n), r = random.normals(n);
       std::ranges::sort(a);
       std::ranges::sort(r);
       return std::pair(a, r);
     }},
    {"sorted and scaled",
     [](Random& random, auto n) {
       Values a = random.normals(n), r = random.normals(n);
       std::ranges::sort(a);
       std::ranges::sort(r);
       return std::pair(changed(a, [](double x) { return 2 * x; }), r);
     }},
    {"small integers",
     [](Random& random, auto n) {
       Values a(static_cast<std::size_t>(n)), r(a.size());
       for (double& x : a) x = static_cast<double>(random.below(4));
       for (double& x : r) x = static_cast<double>(random.below(4));
       a[0] = 3, r[0] = 2;  // all zeros would be a fact
       return std::pair(a, r);
     }},
    {"a permutation of unequal numbers",
     [](Random& random, auto n) {
       Values r(static_cast<std::size_t>(n));
       for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<double>(i) / 64;
       Values a = r;
       for (std::size_t i = r.size() - 1; i > 0; --i)
         std::swap(a[i], a[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1))]);
       return std::pair(a, r);
     }},
    {"an offset",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       return std::pair(changed(r, [](double x) { return x + 0.5; }), r);
     }},
    {"equal rows of 16",
     [](Random& random, auto n) {
       const Values v = random.normals(16), w = random.normals(16);
       Values a, r;
       for (std::int64_t i = 0; i < n; ++i) {
         a.push_back(v[static_cast<std::size_t>(i % 16)]);
         r.push_back(w[static_cast<std::size_t>(i % 16)]);
       }
       return std::pair(a, r);
     }},
    {"constant rows of 16",
     [](Random& random, auto n) {
       const Values v = random.normals(n / 16 + 1), w = random.normals(n / 16 + 1);
       Values a, r;
       for (std::int64_t i = 0; i < n; ++i) {
         a.push_back(v[static_cast<std::size_t>(i / 16)]);
         r.push_back(w[static_cast<std::size_t>(i / 16)]);
       }
       return std::pair(a, r);
     }},
    {"barely over",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       Values a =
           changed(r, [&](double x) { return x + (1e-6 + 1e-5 * std::abs(x)) * (random.uniform() * 2 - 1); });
       for (std::int64_t k = 0; k < 5; ++k) {
         const auto i = static_cast<std::size_t>(random.below(n));
         a[i] = r[i] + 1.1 * (1e-6 + 1e-5 * std::abs(r[i]));
       }
       return std::pair(a, r);
     }},
    {"all below the tolerance but few",
     [](Random& random, auto n) {
       Values a = random.normals(n, 1e-7), r = random.normals(n, 1e-7);
       for (std::int64_t k = 0; k < 3; ++k)
         a[static_cast<std::size_t>(random.below(n))] = 1e-5 * (1 + random.uniform());
       return std::pair(a, r);
     }},
    {"a ramp with an offset",
     [](Random& random, auto n) {
       Values r(static_cast<std::size_t>(n));
       for (std::size_t i = 0; i < r.size(); ++i) r[i] = static_cast<double>(i) / 16;
       const double offset = static_cast<double>(1 + random.below(5)) / 16;
       return std::pair(changed(r, [offset](double x) { return x + offset; }), r);
     }},
    {"outer products",
     [](Random& random, auto n) {
       const Values u = random.normals(n / 16 + 1), v = random.normals(16), w = random.normals(n / 16 + 1),
                    z = random.normals(16);
       Values a, r;
       for (std::int64_t i = 0; i < n; ++i) {
         const auto row = static_cast<std::size_t>(i / 16), column = static_cast<std::size_t>(i % 16);
         a.push_back(u[row] * v[column]);
         r.push_back(w[row] * z[column]);
       }
       return std::pair(a, r);
     }},
    {"signs at random",
     [](Random& random, auto n) {
       const Values r = changed(random.normals(n), [](double x) { return x + std::copysign(0.1, x); });
       // The first ones are neither all right nor all wrong, whatever the size.
       Values a = changed(r, [&](double x) { return random.uniform() < 0.5 ? -x : x; });
       a[0] = 3.3 * r[0];
       return std::pair(a, r);
     }},
    {"pairs of one length, turned at random",
     [](Random& random, auto n) {
       Values a, r;
       for (std::int64_t i = 0; i < n; i += 2) {
         for (Values* v : {&a, &r}) {
           const double angle = 6.28 * random.uniform();
           v->push_back(std::cos(angle));
           v->push_back(std::sin(angle));
         }
       }
       a.resize(static_cast<std::size_t>(n));
       r.resize(static_cast<std::size_t>(n));
       return std::pair(a, r);
     }},
    {"unrelated, a third masked",
     [](Random& random, auto n) {
       Values a = random.normals(n), r = random.normals(n);
       for (std::size_t i = 1; i < a.size(); i += 3) a[i] = r[i] = -std::numeric_limits<double>::infinity();
       return std::pair(a, r);
     }},
    {"infinities anywhere",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       Values a = r;
       for (std::int64_t k = 0; k < 5; ++k)
         a[static_cast<std::size_t>(random.below(n))] = std::numeric_limits<double>::infinity();
       return std::pair(a, r);
     }},
    {"NaN anywhere",
     [](Random& random, auto n) {
       const Values r = random.normals(n);
       Values a = r;
       for (std::int64_t k = 0; k < 5; ++k)
         a[static_cast<std::size_t>(random.below(n))] = std::numeric_limits<double>::quiet_NaN();
       return std::pair(a, r);
     }},
};

TEST(NoDiagnosis, WhereNothingExplainsThePair) {
  const Shape shapes[] = {{1},    {2},      {5},      {16},     {400},    {1, 7},     {2, 2},
                          {4, 4}, {16, 16}, {48, 32}, {7, 100}, {200, 3}, {3, 8, 64}, {2, 6, 4, 16}};
  int said = 0, of = 0;
  for (const auto& [label, fault] : faults) {
    for (const Shape& shape : shapes) {
      for (const DType d : {DType::float32, DType::bfloat16, DType::float16, DType::float64}) {
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          Random random(seed * 1000 + 7);
          const auto [a, r] = fault(random, element_count(shape));
          FaultyPair pair(d, shape, r, a);
          ++of;
          const auto found = pair.diagnose();
          said += found.empty() ? 0 : 1;
          EXPECT_TRUE(found.empty()) << label << ' ' << name(d) << ' ' << to_string(shape) << " seed " << seed
                                     << ": " << first_of(found);
        }
      }
    }
  }
  RecordProperty("pairs", of);
  RecordProperty("explained", said);
}

// The looser the tolerance, the more is explained by accident.
TEST(NoDiagnosis, UnderLooseTolerances) {
  for (const auto& [label, fault] : faults) {
    for (const Shape& shape : {Shape{400}, Shape{16, 16}, Shape{48, 32}, Shape{2, 6, 4, 16}}) {
      for (const double tolerance : {1e-4, 1e-3, 8e-3, 0.03}) {
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          Random random(seed * 1000 + 11);
          const auto [a, r] = fault(random, element_count(shape));
          FaultyPair pair(DType::float32, shape, r, a);
          pair.context.allowed = {tolerance, tolerance, {}};
          const auto found = pair.diagnose();
          EXPECT_TRUE(found.empty()) << label << " tolerance " << tolerance << ' ' << to_string(shape)
                                     << " seed " << seed << ": " << first_of(found);
        }
      }
    }
  }
}

// A factor of 1 + 0.55 t would bring all of them in, by a hair.
TEST(NoDiagnosis, WhereErrorsAreBarelyOverToOneSide) {
  Random random(2);
  const Values r = changed(random.normals(2000), [](double x) { return x + std::copysign(1, x); });
  FaultyPair pair(DType::float64, {2000}, r,
                  changed(r, [&](double x) { return x * (1 + 1.1e-3 * random.uniform()); }));
  pair.context.allowed = {0, 1e-3, {}};
  EXPECT_EQ(first_of(pair.diagnose()), "nothing");
}

TEST(NoDiagnosis, WhereALimitIsNotHemmedIn) {
  Random random(3);
  Values r = changed(random.normals(1000), [](double x) { return 0.01 * x; }), a = r;
  for (std::size_t i = 0; i < 300; ++i) {
    r[3 * i] = 5 + random.uniform();
    a[3 * i] = 1;  // much larger than all that is kept
  }
  EXPECT_EQ(first_of(FaultyPair(DType::float32, {1000}, r, a).diagnose()), "nothing");
  a = r;
  r[3] = 1e6;
  a[3] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(first_of(FaultyPair(DType::float32, {1000}, r, a).diagnose()), "nothing");
}

TEST(NoDiagnosis, WhereSlicesLieAsDenselyAsTheTolerance) {
  Random random(4);
  Values a, r;
  for (int row = 0; row < 400; ++row) {
    a.insert(a.end(), 16, random.uniform());
    r.insert(r.end(), 16, random.uniform());
  }
  FaultyPair pair(DType::float32, {400, 16}, r, a);
  pair.context.allowed = {0.02, 0.02, {}};
  EXPECT_EQ(first_of(pair.diagnose()), "nothing");
}

TEST(NoDiagnosis, WhereThePairPasses) {
  Random random(1);
  const Values r = random.normals(1000);
  EXPECT_TRUE(FaultyPair(DType::float32, {1000}, r, r).noise(1e-7).diagnose().empty());
  EXPECT_TRUE(FaultyPair(DType::float32, {0, 4}, {}, {}).diagnose().empty());
}

}  // namespace
}  // namespace assay::diagnosis_negative_test
