#pragma once

#include "assay/operators/engine/operator.h"

/// Every operator as an object, for code that calls one of them and no other: ops::rope.
/// operator_names.h is written by CMakeLists.txt: one ASSAY_OPERATOR(name) for each, in the order of
/// OPERATORS.md.
namespace assay::ops {
#define ASSAY_OPERATOR(name) extern const Operator name;
#include "assay/operators/engine/operator_names.h"
#undef ASSAY_OPERATOR
}  // namespace assay::ops
