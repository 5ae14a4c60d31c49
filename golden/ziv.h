#pragma once

#include "assay/golden/correctly_rounded.h"

namespace assay {

/// f(x) rounded once to float32, by MPFR with as much precision as it takes (Ziv 1991, "Fast evaluation of
/// elementary mathematical functions with correctly rounded last bit"). Microseconds. Any x but NaN.
float round_by_ziv(Function, float x);

/// Frees what MPFR keeps for the calling thread, once that is done with round_by_ziv.
void forget_ziv_constants();

}  // namespace assay
