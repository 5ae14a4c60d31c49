#include "arrays.h"

#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "assay/golden/error.h"
#include "buffer.h"
#include "dlpack.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

// Keeps a Python object until the last tensor of its memory is gone, on whatever thread that is.
std::shared_ptr<const void> owner_of(nb::object object) {
  return {object.release().ptr(), [](const void* kept) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire gil;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(kept)));
          }};
}

std::string kind_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__module__"))) + "." +
         nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

// An array somewhere in memory.
struct Layout {
  DType dtype;
  const std::byte* first;  // the element at index 0, .., 0
  Shape shape, strides;    // in elements
};

Tensor tensor_at(const Layout& a, std::shared_ptr<const void> owner) {
  const std::int64_t count = element_count(a.shape);
  if (count == 0) return Tensor(a.dtype, a.shape);
  const auto size = static_cast<std::int64_t>(size_of(a.dtype));
  bool is_dense = true;
  std::int64_t dense = 1, lowest = 0, highest = 0;
  for (std::size_t d = a.shape.size(); d-- > 0;) {
    const std::int64_t reach = (a.shape[d] - 1) * a.strides[d];
    (reach < 0 ? lowest : highest) += reach;
    is_dense = is_dense && (a.shape[d] == 1 || a.strides[d] == dense);
    dense *= a.shape[d];
  }
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * size); };
  if (is_dense) return {a.dtype, a.shape, {a.first, bytes(count)}, std::move(owner)};
  const std::int64_t reached = highest - lowest + 1;
  return gather_view({a.dtype, {reached}, {a.first + lowest * size, bytes(reached)}, std::move(owner)},
                     a.shape, a.strides, -lowest);
}

DType dtype_of(const dlpack::Type& type) {
  struct Known {
    std::uint8_t code, bits;
    DType dtype;
  };
  static constexpr Known known[] = {{dlpack::code_float, 64, DType::float64},
                                    {dlpack::code_float, 32, DType::float32},
                                    {dlpack::code_float, 16, DType::float16},
                                    {dlpack::code_bfloat, 16, DType::bfloat16},
                                    {dlpack::code_float8_e4m3fn, 8, DType::float8_e4m3fn},
                                    {dlpack::code_float8_e5m2, 8, DType::float8_e5m2},
                                    {dlpack::code_int, 64, DType::int64},
                                    {dlpack::code_int, 32, DType::int32},
                                    {dlpack::code_int, 16, DType::int16},
                                    {dlpack::code_int, 8, DType::int8},
                                    {dlpack::code_uint, 64, DType::uint64},
                                    {dlpack::code_uint, 32, DType::uint32},
                                    {dlpack::code_uint, 16, DType::uint16},
                                    {dlpack::code_uint, 8, DType::uint8},
                                    {dlpack::code_bool, 8, DType::boolean}};
  for (const Known& k : known) {
    if (k.code == type.code && k.bits == type.bits && type.lanes == 1) return k.dtype;
  }
  throw Error(
      "DLPack code {} of {} bits and {} lanes is not known; expected a float of 8 to 64 bits, an "
      "integer or bool",
      type.code, type.bits, type.lanes);
}

dlpack::Type type_of(DType d) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(d));
  switch (d) {
    case DType::bfloat16:
      return {dlpack::code_bfloat, bits, 1};
    case DType::float8_e4m3fn:
      return {dlpack::code_float8_e4m3fn, bits, 1};
    case DType::float8_e5m2:
      return {dlpack::code_float8_e5m2, bits, 1};
    case DType::float4_e2m1fn:
      throw Error("float4_e2m1fn in a byte has no DLPack type; expected its bits()");
    case DType::boolean:
      return {dlpack::code_bool, bits, 1};
    case DType::uint64:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      return {dlpack::code_uint, bits, 1};
    default:
      return {is_float(d) ? dlpack::code_float : dlpack::code_int, bits, 1};
  }
}

// What struct's format characters mean (PEP 3118), of the machine's byte order.
std::optional<DType> dtype_of(const std::string& format, std::int64_t size) {
  std::string_view code = format;
  if (code.starts_with('>') || code.starts_with('!')) {
    if (size > 1) return {};
    code.remove_prefix(1);
  } else if (code.starts_with('<') || code.starts_with('=') || code.starts_with('@')) {
    code.remove_prefix(1);
  }
  if (code.size() != 1) return {};
  if (code == "?") return DType::boolean;
  if (code == "e") return DType::float16;
  if (code == "f") return DType::float32;
  if (code == "d") return DType::float64;
  const bool is_signed = std::string_view("bhilqn").find(code[0]) != std::string_view::npos;
  if (!is_signed && std::string_view("BHILQN").find(code[0]) == std::string_view::npos) return {};
  switch (size) {
    case 1:
      return is_signed ? DType::int8 : DType::uint8;
    case 2:
      return is_signed ? DType::int16 : DType::uint16;
    case 4:
      return is_signed ? DType::int32 : DType::uint32;
    case 8:
      return is_signed ? DType::int64 : DType::uint64;
    default:
      return {};
  }
}

// numpy, memoryview, array.array.
Tensor from_buffer(nb::handle array) {
  nb::object view = nb::steal(PyMemoryView_FromObject(array.ptr()));
  if (!view.is_valid()) nb::raise_python_error();
  Py_buffer b;
  if (PyObject_GetBuffer(view.ptr(), &b, PyBUF_RECORDS_RO) != 0) nb::raise_python_error();
  const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> described(
      &b, PyBuffer_Release);  // the view holds the rest
  const std::string format = b.format == nullptr ? "B" : b.format;
  const auto dtype = dtype_of(format, b.itemsize);
  if (!dtype)
    throw Error(
        "{}: elements of format '{}' are not known; expected floats or integers in the machine's byte "
        "order",
        kind_of(array), format);
  Layout a{*dtype, static_cast<const std::byte*>(b.buf), {}, {}};
  for (int d = 0; d < b.ndim; ++d) {
    if (b.strides[d] % b.itemsize != 0)
      throw Error("{}: elements lie {} bytes apart; expected a multiple of {}: copy it first", kind_of(array),
                  b.strides[d], b.itemsize);
    a.shape.push_back(b.shape[d]);
    a.strides.push_back(b.strides[d] / b.itemsize);
  }
  return tensor_at(a, owner_of(std::move(view)));
}

nb::object capsule_of(nb::handle array) {
  nb::object method = array.attr("__dlpack__");
  try {
    return method(nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
  }
  return method();  // before DLPack 1.0
}

Tensor from_dlpack(nb::handle array) {
  const auto device = nb::cast<std::pair<std::int64_t, std::int64_t>>(array.attr("__dlpack_device__")());
  if (device.first != dlpack::cpu && device.first != dlpack::cuda_host && device.first != dlpack::rocm_host)
    throw Error("{}: lies on a device (DLPack type {}); expected an array on the host", kind_of(array),
                device.first);
  nb::object capsule = capsule_of(array);
  const dlpack::Array* found = nullptr;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->version.major != 1)
      throw Error("{}: DLPack {} is not known; expected 1", kind_of(array), managed->version.major);
    found = &managed->array;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    found = &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->array;
  } else {
    throw Error("{}: __dlpack__ gives no DLPack capsule", kind_of(array));
  }
  Layout a{dtype_of(found->type), static_cast<const std::byte*>(found->data) + found->byte_offset, {}, {}};
  a.shape.assign(found->shape, found->shape + found->rank);
  if (found->strides != nullptr) {
    a.strides.assign(found->strides, found->strides + found->rank);
  } else {
    a.strides.assign(a.shape.size(), 1);
    for (std::size_t d = a.shape.size(); d-- > 1;) a.strides[d - 1] = a.strides[d] * a.shape[d];
  }
  return tensor_at(a, owner_of(std::move(capsule)));
}

struct Exported {
  dlpack::Managed managed;
  Tensor tensor;
  Shape shape, strides;
};

void release(dlpack::Managed* managed) {
  delete static_cast<Exported*>(managed->context);
}

}  // namespace

Tensor tensor_of(nb::handle array, std::optional<DType> as) {
  const bool has_buffer = PyObject_CheckBuffer(array.ptr()) != 0,
             has_dlpack = nb::hasattr(array, "__dlpack__");
  if (!has_buffer && !has_dlpack)
    throw Error("{}: is no array; expected one that speaks DLPack or the buffer protocol", kind_of(array));
  const Tensor tensor = has_buffer ? from_buffer(array) : from_dlpack(array);
  if (!as || *as == tensor.dtype()) return tensor;
  const bool holds_bits = !is_float(tensor.dtype()) || tensor.dtype() == DType::float32;  // or tfloat32's
  if (!holds_bits || size_of(*as) != size_of(tensor.dtype()))
    throw Error("{}: its elements are {}, which are not the bits of {}; expected integers of {} bytes",
                kind_of(array), name(tensor.dtype()), name(*as), size_of(*as));
  return {*as, tensor.shape(), tensor.bytes(), std::make_shared<const Tensor>(tensor)};
}

nb::object to_dlpack(const Tensor& tensor) {
  auto exported = std::make_unique<Exported>();
  exported->tensor = tensor;
  exported->shape = tensor.shape();
  exported->strides.assign(tensor.shape().size(), 1);
  for (std::size_t d = tensor.shape().size(); d-- > 1;)
    exported->strides[d - 1] = exported->strides[d] * tensor.shape()[d];
  exported->managed = {{const_cast<std::byte*>(tensor.bytes().data()),
                        {dlpack::cpu, 0},
                        static_cast<std::int32_t>(tensor.shape().size()),
                        type_of(tensor.dtype()),
                        exported->shape.data(),
                        exported->strides.data(),
                        0},
                       exported.get(),
                       release};
  PyObject* capsule = PyCapsule_New(&exported->managed, "dltensor", [](PyObject* object) {
    // Whoever took the array has renamed the capsule, and calls release itself.
    if (PyCapsule_IsValid(object, "dltensor") != 0)
      release(static_cast<dlpack::Managed*>(PyCapsule_GetPointer(object, "dltensor")));
  });
  if (capsule == nullptr) nb::raise_python_error();
  (void)exported.release();
  return nb::steal(capsule);
}

}  // namespace assay::python
