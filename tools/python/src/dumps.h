#pragma once

#include <nanobind/nanobind.h>

namespace assay::python {

/// Dumps as Python sees them, and the rows of tolerance tables.
void bind_dumps(nanobind::module_&);

}  // namespace assay::python
