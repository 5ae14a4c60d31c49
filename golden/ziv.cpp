#include "assay/golden/ziv.h"

#include <mpfr.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace assay {
namespace {

// An MPFR number whose operations round to nearest in its own precision p: relative error u = 2^-p each.
class Number {
 public:
  explicit Number(mpfr_prec_t precision) { mpfr_init2(value_, precision); }
  ~Number() { mpfr_clear(value_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  operator mpfr_ptr() { return value_; }  // NOLINT: as MPFR's functions take it

 private:
  mpfr_t value_;
};

constexpr mpfr_rnd_t nearest = MPFR_RNDN;

// y = 1 / (1 + exp(-w)). Its relative error is 3u beside |w| times that of w.
void sigmoid(mpfr_ptr y, mpfr_ptr w) {
  mpfr_neg(y, w, nearest);
  mpfr_exp(y, y, nearest);
  mpfr_add_ui(y, y, 1, nearest);
  mpfr_ui_div(y, 1, y, nearest);
}

// y = f(x) with a relative error of at most 2^12 u wherever f(x) is in float32's range, which only gelu's
// tails come near: of z = x / sqrt(2), 2u off, erfc(z) takes 2 z^2 + 2 times the error, for z < 10.3; of
// w = 2 sqrt(2/pi) (x + 0.044715 x^3), 8u off, exp(-w) takes |w| times the error, for |w| < 110.
void evaluate(Function f, mpfr_ptr y, mpfr_ptr x, mpfr_prec_t precision) {
  switch (f) {
    case Function::exp:
      mpfr_exp(y, x, nearest);
      return;
    case Function::log:
      mpfr_log(y, x, nearest);
      return;
    case Function::log1p:
      mpfr_log1p(y, x, nearest);
      return;
    case Function::expm1:
      mpfr_expm1(y, x, nearest);
      return;
    case Function::sqrt:
      mpfr_sqrt(y, x, nearest);
      return;
    case Function::rsqrt:  // mpfr_rec_sqrt(-0) is +inf
      mpfr_sqrt(y, x, nearest);
      mpfr_ui_div(y, 1, y, nearest);
      return;
    case Function::reciprocal:
      mpfr_ui_div(y, 1, x, nearest);
      return;
    case Function::sin:
      mpfr_sin(y, x, nearest);
      return;
    case Function::cos:
      mpfr_cos(y, x, nearest);
      return;
    case Function::tanh:
      mpfr_tanh(y, x, nearest);
      return;
    case Function::erf:
      mpfr_erf(y, x, nearest);
      return;
    case Function::sigmoid:
      sigmoid(y, x);
      return;
    case Function::silu:
      sigmoid(y, x);
      mpfr_mul(y, y, x, nearest);
      return;
    case Function::gelu: {
      Number z(precision);
      mpfr_sqrt_ui(z, 2, nearest);
      mpfr_div(z, x, z, nearest);
      mpfr_neg(z, z, nearest);
      mpfr_erfc(y, z, nearest);
      mpfr_mul(y, y, x, nearest);
      mpfr_div_2ui(y, y, 1, nearest);
      return;
    }
    case Function::gelu_tanh: {
      Number w(precision), scale(precision);
      mpfr_sqr(w, x, nearest);
      mpfr_mul_ui(w, w, 44715, nearest);
      mpfr_div_ui(w, w, 1000000, nearest);
      mpfr_add_ui(w, w, 1, nearest);
      mpfr_mul(w, w, x, nearest);
      mpfr_const_pi(scale, nearest);
      mpfr_ui_div(scale, 8, scale, nearest);  // (2 sqrt(2/pi))^2
      mpfr_sqrt(scale, scale, nearest);
      mpfr_mul(w, w, scale, nearest);
      sigmoid(y, w);
      mpfr_mul(y, y, x, nearest);
      return;
    }
    case Function::softplus: {
      Number e(precision);
      mpfr_abs(e, x, nearest);
      mpfr_neg(e, e, nearest);
      mpfr_exp(e, e, nearest);
      mpfr_log1p(y, e, nearest);
      if (mpfr_sgn(x) > 0) mpfr_add(y, y, x, nearest);
      return;
    }
  }
}

// x/2 + c x^2 + .. with c > 0.
bool halves_at_zero(Function f) {
  return f == Function::silu || f == Function::gelu || f == Function::gelu_tanh;
}

}  // namespace

float round_by_ziv(Function f, float x) {
  // Half of an odd subnormal is a tie that x^2, 2^-64 of it and less, decides: up. So does the next float64.
  if (halves_at_zero(f) && x != 0 && std::abs(x) < 0x1p-64f)
    return static_cast<float>(
        std::nextafter(static_cast<double>(x) / 2, std::numeric_limits<double>::infinity()));
  // No other f(x) lies on a tie, so some precision decides: for rational x != 0 the elementary functions but
  // sqrt, rsqrt and reciprocal are transcendental (Lindemann), and those three need more bits than x has. For
  // erf and gelu no proof is known; tests/golden/exhaustive.cpp tries every x.
  for (mpfr_prec_t precision = 128;; precision *= 2) {
    Number argument(precision), y(precision), error(precision);
    mpfr_set_flt(argument, x, nearest);
    evaluate(f, y, argument, precision);
    if (mpfr_nan_p(y)) return std::numeric_limits<float>::quiet_NaN();
    if (!mpfr_regular_p(y)) return mpfr_get_flt(y, nearest);  // zero or infinity, with its sign
    mpfr_mul_2si(error, y, 13 - precision, nearest);
    mpfr_sub(argument, y, error, nearest);
    mpfr_add(error, y, error, nearest);
    const float low = mpfr_get_flt(argument, nearest), high = mpfr_get_flt(error, nearest);
    if (std::bit_cast<std::uint32_t>(low) == std::bit_cast<std::uint32_t>(high)) return low;
  }
}

void forget_ziv_constants() {
  mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE);
}

}  // namespace assay
