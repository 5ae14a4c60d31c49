#pragma once

#include <nanobind/nanobind.h>

namespace assay::python {

/// Dumps and sets of tensors against each other, with progress in Python.
void bind_diff(nanobind::module_&);

}  // namespace assay::python
