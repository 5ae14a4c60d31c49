#pragma once

#include <nanobind/nanobind.h>

#include "assay/operators/engine/operator.h"

/// Operators and their attributes as Python's dicts.
namespace assay::python {

/// @throws Error  for a value that no attribute can have
Attributes attributes_of(nanobind::dict);
/// What the operator declares: name, math, source, aliases, attributes with their defaults, args.
nanobind::dict description(const Operator&);

/// The operator that modules of a class of some framework compute; empty: not known.
std::string operator_of_class(const std::string& name);

}  // namespace assay::python
