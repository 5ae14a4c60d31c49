#pragma once

// Instead of <nanobind/stl/string.h>.
#include <nanobind/nanobind.h>

#include <string>

/// Strings as the system's paths are: bytes that are no UTF-8 are Python's surrogates (PEP 383).
namespace assay::python {

inline PyObject* text_of(const std::string& bytes) {
  return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
}

}  // namespace assay::python

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(source.ptr())) return false;
    const object bytes = steal(PyUnicode_AsEncodedString(source.ptr(), "utf-8", "surrogateescape"));
    char* begin = nullptr;
    Py_ssize_t size = 0;
    if (!bytes.is_valid() || PyBytes_AsStringAndSize(bytes.ptr(), &begin, &size) != 0) {
      PyErr_Clear();
      return false;
    }
    value.assign(begin, static_cast<std::size_t>(size));
    return true;
  }
  static handle from_cpp(const std::string& bytes, rv_policy, cleanup_list*) noexcept {
    return assay::python::text_of(bytes);
  }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
