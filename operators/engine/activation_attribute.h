#pragma once

#include <string>
#include <string_view>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// Whether the attribute "activation", of what is done to the result of a convolution, is silu; else it is
/// none.
/// @throws Error  for any other
inline bool has_silu(std::string_view op, const Attributes& a) {
  const std::string& f = a.text("activation");
  if (f != "none" && f != "silu") throw Error("{}: activation is \"{}\"; expected none or silu", op, f);
  return f == "silu";
}

}  // namespace assay
