#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "assay/golden/tensor.h"

/// Arrays of Python as tensors and back.
namespace assay::python {

/// An array on the host that speaks DLPack or the buffer protocol, in any layout; the object is kept alive
/// instead of copied where it is dense in C order.
/// @param as  the dtype of its bits, where the array cannot say it: bfloat16 of uint16
/// @throws Error  for another device, another byte order, a dtype that is not known, and an `as` of another
///                size
Tensor tensor_of(nanobind::handle array, std::optional<DType> as);

/// A capsule "dltensor" that keeps the tensor's memory alive. Throws Error for a dtype that DLPack lacks.
nanobind::object to_dlpack(const Tensor&);

}  // namespace assay::python
