// float64 first, by SLEEF's vectors; then the rounding test: if all values within the float64 result's error
// round to one float32, that is the answer. Else MPFR decides (ziv.h), for fewer than one in a million.
#include "assay/golden/correctly_rounded.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include "assay/golden/error.h"
#include "assay/golden/float_environment.h"
#include "assay/golden/ziv.h"

// NEON is what aarch64 always has; SVE's vectors have no fixed size and were not tried.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/golden/correctly_rounded.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef ASSAY_UNDECIDED
#define ASSAY_UNDECIDED
namespace assay {
namespace {
struct Undecided {
  std::size_t index;
  float x;
};
}  // namespace
}  // namespace assay
#endif

// sleef.h declares only what the compiler's command line allows, so each instruction set declares its own.
#undef ASSAY_SLEEF
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define ASSAY_SLEEF(f, ulp)                                 \
  extern "C" __m512d Sleef_##f##d8_##ulp##avx512f(__m512d); \
  inline Vector sleef_##f(Vector x) {                       \
    return Vector{Sleef_##f##d8_##ulp##avx512f(x.raw)};     \
  }
#elif HWY_TARGET == HWY_AVX2
#define ASSAY_SLEEF(f, ulp)                              \
  extern "C" __m256d Sleef_##f##d4_##ulp##avx2(__m256d); \
  inline Vector sleef_##f(Vector x) {                    \
    return Vector{Sleef_##f##d4_##ulp##avx2(x.raw)};     \
  }
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
#define ASSAY_SLEEF(f, ulp)                              \
  extern "C" __m128d Sleef_##f##d2_##ulp##sse2(__m128d); \
  inline Vector sleef_##f(Vector x) {                    \
    return Vector{Sleef_##f##d2_##ulp##sse2(x.raw)};     \
  }
#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
#define ASSAY_SLEEF(f, ulp)                                         \
  extern "C" float64x2_t Sleef_##f##d2_##ulp##advsimd(float64x2_t); \
  inline Vector sleef_##f(Vector x) {                               \
    return Vector{Sleef_##f##d2_##ulp##advsimd(x.raw)};             \
  }
#else
#define ASSAY_SLEEF(f, ulp)                                    \
  extern "C" double Sleef_##f##_##ulp(double);                 \
  inline Vector sleef_##f(Vector x) {                          \
    const Doubles d;                                           \
    HWY_ALIGN double lanes[hn::MaxLanes(d)];                   \
    hn::Store(x, d, lanes);                                    \
    for (double& lane : lanes) lane = Sleef_##f##_##ulp(lane); \
    return hn::Load(d, lanes);                                 \
  }
#endif

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Doubles>;
using Vector = hn::Vec<Doubles>;

ASSAY_SLEEF(exp, u10)
ASSAY_SLEEF(log, u10)
ASSAY_SLEEF(log1p, u10)
ASSAY_SLEEF(expm1, u10)
ASSAY_SLEEF(sin, u10)
ASSAY_SLEEF(cos, u10)
ASSAY_SLEEF(tanh, u10)
ASSAY_SLEEF(erf, u10)
ASSAY_SLEEF(erfc, u15)

namespace {

Vector constant(double value) {
  return hn::Set(Doubles(), value);
}
// Highway's emulated vectors would saturate where float32 overflows.
hn::Vec<Floats> to_float32(Vector x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN double wide[hn::MaxLanes(Doubles())];
  HWY_ALIGN float narrow[hn::MaxLanes(Doubles())];
  hn::Store(x, Doubles(), wide);
  for (std::size_t i = 0; i < hn::Lanes(Doubles()); ++i) narrow[i] = static_cast<float>(wide[i]);
  return hn::Load(Floats(), narrow);
#else
  return hn::DemoteTo(Floats(), x);
#endif
}

Vector one_plus_exp(Vector x) {
  return hn::Add(constant(1), sleef_exp(x));
}

// Each with a bound on its relative error, wherever float32 can tell the result from 0 and infinity. In units
// u = 2^-53: an operation's rounding is 1u, SLEEF's 1.0 ULP is 2u. SLEEF's bounds are tested by its authors,
// not proven (sleef.org, "Testing"), so the margins are at least four times what they add up to.
constexpr double u = 0x1p-53;
constexpr double one_call = 8 * u;
struct Exp {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_exp(x); }
};
struct Log {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_log(x); }
};
struct Log1p {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_log1p(x); }
};
struct Expm1 {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_expm1(x); }
};
struct Sin {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_sin(x); }
};
struct Cos {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_cos(x); }
};
struct Tanh {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_tanh(x); }
};
struct Erf {
  static constexpr double margin = one_call;
  static Vector of(Vector x) { return sleef_erf(x); }
};
// Rounding these two twice is rounding them once: 53 >= 2 24 + 2 bits (Figueroa 1995), nor are their
// subnormal results, of fewer bits, within 2^-48 of a tie.
struct Sqrt {
  static constexpr double margin = 0;
  static Vector of(Vector x) { return hn::Sqrt(x); }
};
struct Reciprocal {
  static constexpr double margin = 0;
  static Vector of(Vector x) { return hn::Div(constant(1), x); }
};
struct Rsqrt {  // two operations of the processor: 2u, and that is proven
  static constexpr double margin = 4 * u;
  static Vector of(Vector x) { return hn::Div(constant(1), hn::Sqrt(x)); }
};
struct Sigmoid {  // exp 2u at most (its share of the sum), sum 1u, quotient 1u
  static constexpr double margin = 16 * u;
  static Vector of(Vector x) { return hn::Div(constant(1), one_plus_exp(hn::Neg(x))); }
};
struct Silu {  // as sigmoid
  static constexpr double margin = 16 * u;
  static Vector of(Vector x) { return hn::Div(x, one_plus_exp(hn::Neg(x))); }
};
// z = -x / sqrt(2) is off by 2u (constant and product), of which erfc(z) takes 2 z^2 + 2 times: z < 10.3
// where the result is no float32 zero, so 430u; erfc itself 3u, two products 2u. SLEEF's share is small here,
// so twice the sum is enough.
struct Gelu {
  static constexpr double margin = 1024 * u;
  static Vector of(Vector x) {
    const Vector z = hn::Mul(x, constant(-0.70710678118654752440));
    return hn::Mul(hn::Mul(constant(0.5), x), sleef_erfc(z));
  }
};
// w = 2 sqrt(2/pi) (x + 0.044715 x^3) = x (c1 + c2 x^2): x^2 is exact, 48 bits; c2, its product, the sum, and
// the product with x 1u each, c1's error is in c1 + .. alone: 4u. exp(-w) takes |w| < 110 times that, 440u
// where the result is no float32 zero; then as silu.
struct GeluTanh {
  static constexpr double margin = 1024 * u;
  static Vector of(Vector x) {
    const Vector c1 = constant(1.59576912160573071175978423973752747),
                 c2 = constant(0.0713548162726002487763387523);
    const Vector w = hn::Mul(x, hn::Add(c1, hn::Mul(c2, hn::Mul(x, x))));
    return hn::Div(x, one_plus_exp(hn::Neg(w)));
  }
};
struct Softplus {  // exp 2u, of which log1p takes at most all; log1p 2u; a sum of two of one sign 1u
  static constexpr double margin = 24 * u;
  static Vector of(Vector x) {
    return hn::Add(hn::Max(x, constant(0)), sleef_log1p(sleef_exp(hn::Neg(hn::Abs(x)))));
  }
};

// `count` elements of one vector; returns how many are undecided.
template <class F>
std::size_t step(const float* x, float* y, std::size_t index, Undecided* undecided) {
  const Floats df;
  const auto argument = hn::LoadU(df, x + index);
  const Vector value = F::of(hn::PromoteTo(Doubles(), argument));
  const auto low = to_float32(hn::Mul(value, constant(1 - F::margin)));
  const auto high = to_float32(hn::Mul(value, constant(1 + F::margin)));
  const auto is_nan = hn::IsNaN(low);
  hn::StoreU(hn::IfThenElse(is_nan, hn::Set(df, std::numeric_limits<float>::quiet_NaN()), low), df,
             y + index);
  const auto decided = hn::Or(is_nan, hn::Eq(low, high));
  if (HWY_LIKELY(hn::AllTrue(df, decided))) return 0;
  float arguments[hn::MaxLanes(df)], decisions[hn::MaxLanes(df)];
  hn::StoreU(argument, df, arguments);
  hn::StoreU(hn::IfThenElseZero(decided, hn::Set(df, 1)), df, decisions);
  std::size_t count = 0;
  for (std::size_t i = 0; i < hn::Lanes(df); ++i) {
    if (decisions[i] == 0) undecided[count++] = {index + i, arguments[i]};
  }
  return count;
}

template <class F>
std::size_t map(const float* x, float* y, std::size_t n, Undecided* undecided) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) count += step<F>(x, y, i, undecided + count);
  if (i < n) {
    float rest[hn::MaxLanes(Floats())], results[hn::MaxLanes(Floats())];
    std::fill(std::copy(x + i, x + n, rest), std::end(rest), x[i]);
    Undecided doubtful[hn::MaxLanes(Floats())] = {};
    const std::size_t found = step<F>(rest, results, 0, doubtful);
    for (std::size_t k = 0; k < found; ++k) {
      if (i + doubtful[k].index < n) undecided[count++] = {i + doubtful[k].index, doubtful[k].x};
    }
    std::copy(results, results + (n - i), y + i);
  }
  return count;
}

}  // namespace

// What float64 decides of y = f(x); the rest goes to `undecided`, which has room for n.
HWY_NOINLINE std::size_t map_function(Function f, const float* x, float* y, std::size_t n,
                                      Undecided* undecided) {
  switch (f) {
    case Function::exp:
      return map<Exp>(x, y, n, undecided);
    case Function::log:
      return map<Log>(x, y, n, undecided);
    case Function::log1p:
      return map<Log1p>(x, y, n, undecided);
    case Function::expm1:
      return map<Expm1>(x, y, n, undecided);
    case Function::sqrt:
      return map<Sqrt>(x, y, n, undecided);
    case Function::rsqrt:
      return map<Rsqrt>(x, y, n, undecided);
    case Function::reciprocal:
      return map<Reciprocal>(x, y, n, undecided);
    case Function::sin:
      return map<Sin>(x, y, n, undecided);
    case Function::cos:
      return map<Cos>(x, y, n, undecided);
    case Function::tanh:
      return map<Tanh>(x, y, n, undecided);
    case Function::erf:
      return map<Erf>(x, y, n, undecided);
    case Function::sigmoid:
      return map<Sigmoid>(x, y, n, undecided);
    case Function::silu:
      return map<Silu>(x, y, n, undecided);
    case Function::gelu:
      return map<Gelu>(x, y, n, undecided);
    case Function::gelu_tanh:
      return map<GeluTanh>(x, y, n, undecided);
    case Function::softplus:
      return map<Softplus>(x, y, n, undecided);
  }
  return 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(map_function);

std::string_view name(Function f) {
  switch (f) {
    case Function::exp:
      return "exp";
    case Function::log:
      return "log";
    case Function::log1p:
      return "log1p";
    case Function::expm1:
      return "expm1";
    case Function::sqrt:
      return "sqrt";
    case Function::rsqrt:
      return "rsqrt";
    case Function::reciprocal:
      return "reciprocal";
    case Function::sin:
      return "sin";
    case Function::cos:
      return "cos";
    case Function::tanh:
      return "tanh";
    case Function::erf:
      return "erf";
    case Function::sigmoid:
      return "sigmoid";
    case Function::silu:
      return "silu";
    case Function::gelu:
      return "gelu";
    case Function::gelu_tanh:
      return "gelu_tanh";
    case Function::softplus:
      return "softplus";
  }
  return "";
}

std::int64_t correctly_rounded(Function f, std::span<const float> x, std::span<float> y, int threads) {
  if (x.size() != y.size())
    throw Error("{}: {} arguments and room for {} results; expected as many", name(f), x.size(), y.size());
  constexpr std::size_t chunk = 4096;  // in and out, 32 KiB
  const std::size_t chunks = (x.size() + chunk - 1) / chunk;
  std::atomic<std::size_t> next = 0;
  std::atomic<std::int64_t> escalated = 0;
  const auto work = [&] {
    const DefaultFloatEnvironment environment;
    std::vector<Undecided> undecided(std::min(chunk, x.size()));
    for (std::size_t c = next++; c < chunks; c = next++) {
      const std::size_t begin = c * chunk, n = std::min(chunk, x.size() - begin);
      float* const out = y.data() + begin;
      const std::size_t count =
          HWY_DYNAMIC_DISPATCH(map_function)(f, x.data() + begin, out, n, undecided.data());
      for (std::size_t i = 0; i < count; ++i) out[undecided[i].index] = round_by_ziv(f, undecided[i].x);
      escalated += static_cast<std::int64_t>(count);
    }
    forget_ziv_constants();
  };
  std::vector<std::jthread> pool;
  const std::size_t helpers = std::min(chunks, static_cast<std::size_t>(std::max(1, threads)));
  for (std::size_t t = 1; t < helpers; ++t) pool.emplace_back(work);
  work();
  pool.clear();
  return escalated;
}

}  // namespace assay
#endif  // HWY_ONCE
