#include "objects.h"

namespace assay {

std::optional<DType> integer_type(std::size_t size, bool is_signed) {
  constexpr DType types[2][4] = {{DType::uint8, DType::uint16, DType::uint32, DType::uint64},
                                 {DType::int8, DType::int16, DType::int32, DType::int64}};
  for (std::size_t i = 0; i < 4; ++i) {
    if (size == std::size_t{1} << i) return types[is_signed ? 1 : 0][i];
  }
  return std::nullopt;
}

std::optional<DType> float_type(const FloatFields& f) {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16,
                            DType::float8_e4m3fn, DType::float8_e5m2}) {
    const FloatFormat& format = format_of(dtype);
    if (f.size == size_of(dtype) && f.sign == 8 * f.size - 1 && f.fraction == 0 &&
        f.exponent == f.fraction_bits && f.exponent_bits == static_cast<std::size_t>(format.exponent_bits) &&
        f.fraction_bits == static_cast<std::size_t>(format.fraction_bits) &&
        f.bias == static_cast<std::size_t>(format.bias)) {
      return dtype;
    }
  }
  return std::nullopt;
}

namespace {

std::optional<DType> float_type(hid_t type) {
  FloatFields f{H5Tget_size(type), 0, 0, 0, 0, 0, H5Tget_ebias(type)};
  if (H5Tget_fields(type, &f.sign, &f.exponent, &f.exponent_bits, &f.fraction, &f.fraction_bits) < 0)
    return std::nullopt;
  return assay::float_type(f);
}

// h5py writes numpy booleans as an enumeration over int8.
bool is_boolean_enum(hid_t type) {
  std::int8_t value[8] = {};
  if (H5Tget_nmembers(type) != 2 || H5Tget_size(type) != 1) return false;
  return H5Tenum_valueof(type, "FALSE", value) >= 0 && value[0] == 0 &&
         H5Tenum_valueof(type, "TRUE", value) >= 0 && value[0] == 1;
}

}  // namespace

std::optional<DType> dtype_of(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const H5T_class_t type_class = H5Tget_class(type);
  if (type_class == H5T_ENUM) {
    if (is_boolean_enum(type)) return DType::boolean;
    const Hdf5Handle base(H5Tget_super(type), H5Tclose);
    return base.is_open() && H5Tget_class(base) == H5T_INTEGER ? dtype_of(base) : std::nullopt;
  }
  if (type_class != H5T_INTEGER && type_class != H5T_FLOAT && type_class != H5T_BITFIELD) return std::nullopt;
  if (H5Tget_precision(type) != 8 * size || H5Tget_offset(type) != 0) return std::nullopt;
  const H5T_order_t order = H5Tget_order(type);
  if (order != H5T_ORDER_LE && order != H5T_ORDER_BE && size != 1) return std::nullopt;
  if (type_class == H5T_FLOAT) return float_type(type);
  return integer_type(size, type_class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2);
}

std::string type_text(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_STRING:
      return "a string";
    case H5T_COMPOUND:
      return "a compound";
    case H5T_OPAQUE:
      return "opaque bytes";
    case H5T_REFERENCE:
      return "a reference";
    case H5T_ARRAY:
      return "an array type";
    case H5T_VLEN:
      return "a variable-length type";
    case H5T_FLOAT:
      return "an unusual float of " + std::to_string(H5Tget_size(type)) + " bytes";
    case H5T_INTEGER:
      return "an unusual integer of " + std::to_string(H5Tget_size(type)) + " bytes";
    default:
      return "an unknown type";
  }
}

}  // namespace assay
