// Every float32 argument of every function: label "slow", run by hand.
//   ctest --test-dir build/release -L slow      (or test_exhaustive --gtest_filter='*/gelu')
// MPFR for 2^32 arguments would take hours. So the C library's float64 functions, which share no code with
// SLEEF, say what they can: y with an error of at most `margin` (the GNU C Library manual, "Errors in Math
// Functions", lists 1 or 2 ulp, 5 for erfc). Where that leaves one float32, it must be golden's; where it
// leaves two, or golden differs, MPFR says which. On two cores some minutes a function.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "assay/golden/correctly_rounded.h"
#include "mpfr_oracle.h"

namespace assay {
namespace {

// In float64 by the C library, with forms of their own where there are others than golden's.
double by_libm(Function f, double x) {
  switch (f) {
    case Function::exp:
      return std::exp(x);
    case Function::log:
      return std::log(x);
    case Function::log1p:
      return std::log1p(x);
    case Function::expm1:
      return std::expm1(x);
    case Function::sqrt:
      return std::sqrt(x);
    case Function::rsqrt:
      return std::sqrt(1 / x);
    case Function::reciprocal:
      return 1 / x;
    case Function::sin:
      return std::sin(x);
    case Function::cos:
      return std::cos(x);
    case Function::tanh:
      return std::tanh(x);
    case Function::erf:
      return std::erf(x);
    case Function::sigmoid:
      return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case Function::silu:
      return by_libm(Function::sigmoid, x) * x;
    case Function::gelu:
      return std::erfc(x / -std::sqrt(2.0)) / 2 * x;
    case Function::gelu_tanh:
      return by_libm(Function::sigmoid, (x + 0.044715 * x * x * x) * 1.5957691216057307) * x;
    case Function::softplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  return 0;
}

// The tails of the gelus multiply the rounding errors of an argument by up to 2 10.3^2 + 2 and 110: 2^-44 or
// so; everything else is off by a few 2^-52. Some 2^-20 and 2^-17 of the arguments go to MPFR.
double margin(Function f) {
  return f == Function::gelu || f == Function::gelu_tanh ? 0x1p-42 : 0x1p-46;
}

class Exhaustive : public testing::TestWithParam<Function> {};

TEST_P(Exhaustive, EveryFloat32) {
  const Function f = GetParam();
  const double low_factor = 1 - margin(f), high_factor = 1 + margin(f);
  constexpr std::size_t chunk = 1 << 16;
  constexpr std::uint64_t chunks = (std::uint64_t{1} << 32) / chunk;
  std::atomic<std::uint64_t> next = 0, wrong = 0, by_mpfr = 0;
  std::atomic<std::int64_t> escalated = 0;
  std::atomic<std::uint32_t> example = 0;
  const auto work = [&] {
    MpfrOracle oracle;
    std::vector<float> x(chunk), y(chunk);
    for (std::uint64_t c = next++; c < chunks; c = next++) {
      for (std::size_t i = 0; i < chunk; ++i)
        x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(c * chunk + i));
      escalated += correctly_rounded(f, x, y);
      std::uint64_t asked = 0;
      for (std::size_t i = 0; i < chunk; ++i) {
        const double value = by_libm(f, x[i]);
        const auto low = static_cast<float>(value * low_factor),
                   high = static_cast<float>(value * high_factor);
        const auto found = std::bit_cast<std::uint32_t>(y[i]);
        if (std::isnan(value) ? found == 0x7fc00000
                              : low == high && found == std::bit_cast<std::uint32_t>(low))
          continue;
        ++asked;
        float expected = oracle(f, x[i]);
        if (f == Function::rsqrt && x[i] == 0) expected = 1 / x[i];  // MPFR: always +inf
        if (std::isnan(expected)) expected = std::bit_cast<float>(0x7fc00000u);
        if (found != std::bit_cast<std::uint32_t>(expected)) {
          ++wrong;
          example = std::bit_cast<std::uint32_t>(x[i]);
        }
      }
      by_mpfr += asked;
    }
  };
  {
    std::vector<std::jthread> pool;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) pool.emplace_back(work);
  }
  EXPECT_EQ(wrong, 0u) << name(f) << ", for one at " << std::hexfloat << std::bit_cast<float>(example.load());
  std::printf("%s: %lld of 2^32 left to MPFR by golden, %llu by this test\n", std::string(name(f)).c_str(),
              static_cast<long long>(escalated), static_cast<unsigned long long>(by_mpfr));
}

INSTANTIATE_TEST_SUITE_P(Functions, Exhaustive, testing::ValuesIn(all_functions),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace assay
