#pragma once

#include <nanobind/nanobind.h>

namespace assay::python {

/// The class Report, and how reports of several processes become one.
void bind_reports(nanobind::module_&);

}  // namespace assay::python
