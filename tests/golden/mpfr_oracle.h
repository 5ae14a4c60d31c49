#pragma once

#include <mpfr.h>

#include <cmath>

#include "assay/golden/correctly_rounded.h"

namespace assay {

/// f(x) rounded once to float32, by other formulas than golden's and at a fixed precision. Near zero silu and
/// gelu miss ties by x^2 only: 700 bits hold x + x^2 for the smallest x. Elsewhere no
/// float32 argument of these functions comes nearer to a tie than some 2^-64.
class MpfrOracle {
 public:
  MpfrOracle() { mpfr_inits2(700, x_, y_, z_, static_cast<mpfr_ptr>(nullptr)); }
  ~MpfrOracle() {
    mpfr_clears(x_, y_, z_, static_cast<mpfr_ptr>(nullptr));
    mpfr_free_cache();
  }
  MpfrOracle(const MpfrOracle&) = delete;
  MpfrOracle& operator=(const MpfrOracle&) = delete;

  float operator()(Function f, float x) {
    const mpfr_prec_t precision = std::abs(x) < 0x1p-20f ? 700 : 128;
    for (const mpfr_ptr number : {x_, y_, z_}) mpfr_set_prec(number, precision);
    mpfr_set_flt(x_, x, MPFR_RNDN);
    evaluate(f, x);
    return mpfr_get_flt(y_, MPFR_RNDN);
  }

 private:
  void evaluate(Function f, float x) {
    constexpr mpfr_rnd_t r = MPFR_RNDN;
    switch (f) {
      case Function::exp:
        mpfr_exp(y_, x_, r);
        return;
      case Function::log:
        mpfr_log(y_, x_, r);
        return;
      case Function::log1p:
        mpfr_log1p(y_, x_, r);
        return;
      case Function::expm1:
        mpfr_expm1(y_, x_, r);
        return;
      case Function::sqrt:
        mpfr_sqrt(y_, x_, r);
        return;
      case Function::rsqrt:
        mpfr_rec_sqrt(y_, x_, r);
        return;
      case Function::reciprocal:
        mpfr_ui_div(y_, 1, x_, r);
        return;
      case Function::sin:
        mpfr_sin(y_, x_, r);
        return;
      case Function::cos:
        mpfr_cos(y_, x_, r);
        return;
      case Function::tanh:
        mpfr_tanh(y_, x_, r);
        return;
      case Function::erf:
        mpfr_erf(y_, x_, r);
        return;
      case Function::sigmoid:
        mpfr_set(z_, x_, r);
        logistic();
        return;
      case Function::silu:
        mpfr_set(z_, x_, r);
        logistic();
        mpfr_mul(y_, y_, x_, r);
        return;
      case Function::gelu:  // x erfc(-sqrt(x^2 / 2)) / 2, with the sign put back
        // Beyond 20 it is x (1 - 2^-294), or less than 2^-290 |x|: erfc(20 / sqrt(2)) / 2 < 2^-294.
        if (std::isfinite(x) && std::abs(x) > 20) {
          mpfr_mul_2si(y_, x_, x > 0 ? 0 : -290, r);
          return;
        }
        mpfr_set(z_, x_, r);
        mpfr_sqr(z_, z_, r);
        mpfr_div_2ui(z_, z_, 1, r);
        mpfr_sqrt(z_, z_, r);
        if (!std::signbit(x)) mpfr_neg(z_, z_, r);
        mpfr_erfc(y_, z_, r);
        mpfr_mul(y_, y_, x_, r);
        mpfr_div_2ui(y_, y_, 1, r);
        return;
      case Function::gelu_tanh:  // w = (x + 44715e-6 x^3) sqrt(8 / pi)
        mpfr_pow_ui(z_, x_, 3, r);
        mpfr_mul_ui(z_, z_, 44715, r);
        mpfr_div_ui(z_, z_, 1000000, r);
        mpfr_add(z_, z_, x_, r);
        mpfr_const_pi(y_, r);
        mpfr_div_2ui(y_, y_, 3, r);
        mpfr_rec_sqrt(y_, y_, r);
        mpfr_mul(z_, z_, y_, r);
        logistic();
        mpfr_mul(y_, y_, x_, r);
        return;
      case Function::softplus:  // x + log(1 + exp(-x)): exact enough where exp(x) would be tiny beside 1
        if (x > 0) {
          mpfr_neg(z_, x_, r);
          mpfr_exp(z_, z_, r);
          mpfr_log1p(z_, z_, r);
          mpfr_add(y_, x_, z_, r);
        } else {
          mpfr_exp(z_, x_, r);
          mpfr_log1p(y_, z_, r);
        }
        return;
    }
  }
  // y = exp(z) / (1 + exp(z)), for positive z 1 - exp(-z) / (1 + exp(-z)).
  void logistic() {
    constexpr mpfr_rnd_t r = MPFR_RNDN;
    const bool positive = mpfr_sgn(z_) > 0;
    if (positive) mpfr_neg(z_, z_, r);
    mpfr_exp(y_, z_, r);
    mpfr_add_ui(z_, y_, 1, r);
    mpfr_div(y_, y_, z_, r);
    if (positive) mpfr_ui_sub(y_, 1, y_, r);
  }

  mpfr_t x_, y_, z_;
};

}  // namespace assay
