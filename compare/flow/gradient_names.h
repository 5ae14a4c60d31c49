#pragma once

#include <string_view>

#include "assay/compare/flow/relation.h"

namespace assay {

/// Of a value, not of a parameter.
inline bool is_gradient(const Identity& id) {
  return id.slot == "grad_output" || id.slot == "grad_input";
}

/// Of a parameter, as the optimizer takes it: summed over micro-batches and ranks.
inline bool is_whole_gradient(const Identity& id) {
  return id.slot == "grad" && id.micro_batch < 0 && id.arg.find('.') == std::string::npos;
}

/// What the gradient is of: a result, or an input of a module.
inline Name value_of(const Identity& gradient) {
  Name value = name_of(gradient);
  value.phase = Phase::forward;
  value.slot = gradient.slot == "grad_output" ? "output" : "input";
  return value;
}

/// The parameter that it is a gradient of, or a share of one.
inline Name parameter_of(const Identity& gradient) {
  Name param = name_of(gradient);
  param.phase = Phase::forward;
  param.slot = "param";
  param.arg = param.arg.substr(0, param.arg.find('.'));
  return param;
}

/// The gradient of a value in the step and micro-batch of a tensor.
inline Identity gradient_of(const Name& value, const Identity& frame) {
  Identity id = at(value, frame.step, frame.micro_batch);
  id.phase = Phase::backward;
  id.slot = value.slot == "output" ? "grad_output" : "grad_input";
  return id;
}

}  // namespace assay
