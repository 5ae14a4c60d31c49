#include "assay/dumps/npy_writer.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

#include "assay/dumps/io/unfinished.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::string_view descr(DType dtype, NpyTypes types) {
  if (types == NpyTypes::ml_dtypes) {
    if (dtype == DType::bfloat16) return "<V2";
    if (dtype == DType::float8_e4m3fn || dtype == DType::float4_e2m1fn) return "<V1";
    if (dtype == DType::float8_e5m2) return "<f1";
  }
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
    case DType::float4_e2m1fn:
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
std::string header(const Tensor& tensor, NpyTypes types) {
  std::string shape;
  for (const std::int64_t extent : tensor.shape()) shape += fmt::format("{}, ", extent);
  if (tensor.shape().size() > 1) shape.resize(shape.size() - 2);
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr(tensor.dtype(), types),
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
  write_npy(path, tensor, NpyTypes::bits);
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor, NpyTypes types) {
  const std::string head = header(tensor, types);
  write_whole(path, {std::as_bytes(std::span(head)), tensor.bytes()});
}

void write_npy_file(const std::filesystem::path& path, const PlainTensor& tensor) {
  Unfinished file(path, Unfinished::Kind::file);
  write_npy(file.path(), tensor.read(), NpyTypes::ml_dtypes);
  file.finish();
}

void write_npy_folder(const std::filesystem::path& path, std::span<const PlainTensor> tensors) {
  for (const PlainTensor& tensor : tensors) check_path_name(tensor.name, path.string());
  Unfinished folder(path, Unfinished::Kind::folder);
  for (const PlainTensor& tensor : tensors) {
    const std::filesystem::path file = folder.path() / (tensor.name + ".npy");
    try {
      std::filesystem::create_directories(file.parent_path());
      write_npy(file, tensor.read(), NpyTypes::ml_dtypes);
    } catch (const std::filesystem::filesystem_error& problem) {
      throw Error("{}: cannot be made: {}", file.string(), problem.code().message());
    }
  }
  folder.finish();
}

}  // namespace assay
