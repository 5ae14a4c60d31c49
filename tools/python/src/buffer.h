#pragma once

#include <Python.h>

// The buffer protocol is in the headers of the stable ABI from Python 3.11 on. In 3.10 it is the same (PEP
// 3118; Python's issue 89622 froze what there was).
#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030B0000
extern "C" {
struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char* format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void* internal;
};
int PyObject_CheckBuffer(PyObject*);
int PyObject_GetBuffer(PyObject*, Py_buffer*, int flags);
void PyBuffer_Release(Py_buffer*);
}
// With format and strides, without pointers in between.
constexpr int PyBUF_RECORDS_RO = 0x4 | 0x8 | 0x10;
#endif
