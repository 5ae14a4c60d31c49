#pragma once

#include <nanobind/nanobind.h>

/// Orders of additions, found by asking functions of Python.
namespace assay::python {

void bind_orders(nanobind::module_&);

}  // namespace assay::python
