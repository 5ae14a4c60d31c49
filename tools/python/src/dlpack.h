#pragma once

#include <cstdint>

/// The binary interface of DLPack 1.1 (dmlc/dlpack, include/dlpack/dlpack.h), as far as host arrays need it.
namespace assay::python::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda_host = 3, rocm_host = 11 };

enum TypeCode : std::uint8_t {
  code_int = 0,
  code_uint = 1,
  code_float = 2,
  code_bfloat = 4,
  code_bool = 6,
  code_float8_e4m3fn = 10,
  code_float8_e5m2 = 12,
};

struct Device {
  std::int32_t type, id;
};
struct Type {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Array {
  void* data;
  Device device;
  std::int32_t rank;
  Type type;
  std::int64_t *shape, *strides;  ///< strides in elements; nullptr: dense, in C order
  std::uint64_t byte_offset;
};

/// In a capsule called "dltensor".
struct Managed {
  Array array;
  void* context;
  void (*release)(Managed*);
};
/// In a capsule called "dltensor_versioned".
struct ManagedVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*release)(ManagedVersioned*);
  std::uint64_t flags;
  Array array;
};

}  // namespace assay::python::dlpack
