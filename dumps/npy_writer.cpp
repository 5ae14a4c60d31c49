#include "assay/dumps/npy_writer.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "assay/dumps/whole_file.h"

namespace assay {
namespace {

std::string_view descr(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return "<f8";
    case DType::float32:
    case DType::tfloat32:
    case DType::hfloat32:
      return "<f4";
    case DType::float16:
      return "<f2";
    case DType::bfloat16:
    case DType::uint16:
      return "<u2";
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
    case DType::uint8:
      return "|u1";
    case DType::int64:
      return "<i8";
    case DType::int32:
      return "<i4";
    case DType::int16:
      return "<i2";
    case DType::int8:
      return "|i1";
    case DType::uint64:
      return "<u8";
    case DType::uint32:
      return "<u4";
    case DType::boolean:
      return "|b1";
  }
  return {};
}

// numpy.lib.format: magic, version, length of the header, a Python dict padded so that the data is 64-byte
// aligned.
std::string header(const Tensor& tensor) {
  std::string shape;
  for (const std::int64_t extent : tensor.shape()) shape += fmt::format("{}, ", extent);
  if (tensor.shape().size() > 1) shape.resize(shape.size() - 2);
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr(tensor.dtype()),
                  shape.ends_with(", ") ? shape.substr(0, shape.size() - 1) : shape);
  constexpr std::size_t fixed = 10, alignment = 64;
  dict.append(alignment - 1 - (fixed + dict.size()) % alignment, ' ');
  dict += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

}  // namespace

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const std::string head = header(tensor);
  write_whole(path, {std::as_bytes(std::span(head)), tensor.bytes()});
}

}  // namespace assay
