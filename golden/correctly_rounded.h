#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace assay {

/// Functions of one variable, as formulas over the reals.
enum class Function : std::uint8_t {
  exp,
  log,
  log1p,
  expm1,
  sqrt,
  rsqrt,       ///< 1 / sqrt(x)
  reciprocal,  ///< 1 / x
  sin,         ///< radians
  cos,
  tanh,
  erf,
  sigmoid,    ///< 1 / (1 + exp(-x))
  silu,       ///< x / (1 + exp(-x))
  gelu,       ///< x erfc(-x / sqrt(2)) / 2
  gelu_tanh,  ///< x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), 0.044715 the decimal number
  softplus,   ///< log(1 + exp(x)), without torch's threshold
};
inline constexpr Function all_functions[] = {
    Function::exp,  Function::log,   Function::log1p,      Function::expm1,
    Function::sqrt, Function::rsqrt, Function::reciprocal, Function::sin,
    Function::cos,  Function::tanh,  Function::erf,        Function::sigmoid,
    Function::silu, Function::gelu,  Function::gelu_tanh,  Function::softplus};

/// "exp", "gelu_tanh": the enumerator's name.
std::string_view name(Function);

/// y[i] = f(x[i]) rounded once to nearest even, subnormal results and overflow included: the one correct
/// float32, so the bits depend on no library, instruction set or number of threads.
///
/// Special values are IEEE 754-2019's (sec. 9.2.1) where it has the function, else what the formula gives:
/// NaN, and what is outside the domain (log of x < 0, sin of infinity) -> the quiet NaN 0x7fc00000;
/// log(0) = log1p(-1) = -inf; rsqrt(-0) = reciprocal(-0) = -inf; sqrt(-0) = -0; the functions with f(0) = 0
/// keep zero's sign; silu, gelu and gelu_tanh of -inf -> NaN (-inf times 0, as PyTorch), of very negative
/// numbers -> -0; softplus(-inf) = +0.
///
/// @param y        as long as x; may be the same memory
/// @param threads  the caller's and threads - 1 more
/// @return         how many elements float64 left undecided, so that MPFR (or, for half of a subnormal, the
/// next
///                 term of the series) decided
/// Throws Error if the lengths differ.
std::int64_t correctly_rounded(Function, std::span<const float> x, std::span<float> y, int threads = 1);

}  // namespace assay
