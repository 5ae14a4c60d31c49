#pragma once

#include <nanobind/nanobind.h>

namespace assay::python {

/// What a recorder in Python writes: its rank's part of an assay-dump.
void bind_recording(nanobind::module_&);

}  // namespace assay::python
