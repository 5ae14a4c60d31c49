#include "assay/dumps/safetensors_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "assay/dumps/assay_dump_index.h"
#include "assay/dumps/io/json.h"
#include "assay/dumps/io/unfinished.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::vector<std::byte> in_pairs(std::span<const std::byte> elements) {
  std::vector<std::byte> pairs;
  pairs.reserve(elements.size() / 2);
  for (std::size_t i = 0; i + 1 < elements.size(); i += 2)
    pairs.push_back(elements[i] | elements[i + 1] << 4);
  return pairs;
}

std::string type_name(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return "F64";
    case DType::float32:
    case DType::tfloat32:
    case DType::hfloat32:
      return "F32";
    case DType::float16:
      return "F16";
    case DType::bfloat16:
      return "BF16";
    case DType::float8_e4m3fn:
      return "F8_E4M3";
    case DType::float8_e5m2:
      return "F8_E5M2";
    case DType::int64:
      return "I64";
    case DType::int32:
      return "I32";
    case DType::int16:
      return "I16";
    case DType::int8:
      return "I8";
    case DType::uint64:
      return "U64";
    case DType::uint32:
      return "U32";
    case DType::uint16:
      return "U16";
    case DType::float4_e2m1fn:
    case DType::uint8:
      return "U8";
    case DType::boolean:
      return "BOOL";
  }
  return {};
}

std::int64_t bytes_of(const PlainTensor& tensor) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(element_count(tensor.shape), static_cast<std::int64_t>(size_of(tensor.dtype)),
                             &bytes)) {
    throw Error("tensor '{}': its shape {} has more than 2^63 bytes", tensor.name, to_string(tensor.shape));
  }
  return is_packed_in_safetensors(tensor) ? bytes / 2 : bytes;
}

// The widest first, as the reference implementation does.
std::vector<std::size_t> data_order(std::span<const PlainTensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].dtype) > size_of(tensors[b].dtype);
  });
  return order;
}

std::string header(std::span<const PlainTensor> tensors, std::span<const std::size_t> order,
                   const std::string& where) {
  std::vector<std::int64_t> begins(tensors.size());
  std::int64_t end = 0;
  for (const std::size_t i : order) {
    begins[i] = end;
    end += bytes_of(tensors[i]);
  }
  Json::Object entries;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlainTensor& t = tensors[i];
    if (t.name == "__metadata__") throw Error("{}: a tensor cannot be called '{}' there", where, t.name);
    entries.push_back(
        {t.name, Json{Json::Object{{"dtype", {is_packed_in_safetensors(t) ? "F4" : type_name(t.dtype)}},
                                   {"shape", json_numbers(t.shape)},
                                   {"data_offsets", json_numbers({begins[i], begins[i] + bytes_of(t)})}}}});
  }
  std::string text = Json{std::move(entries)}.text();
  text.append((8 - text.size() % 8) % 8, ' ');  // data at a multiple of 8
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(text.size() >> shift & 0xff);
  return out + text;
}

}  // namespace

bool is_packed_in_safetensors(const PlainTensor& tensor) {
  return tensor.dtype == DType::float4_e2m1fn && element_count(tensor.shape) % 2 == 0;
}

void write_safetensors(const std::filesystem::path& path, std::span<const PlainTensor> tensors) {
  const std::vector<std::size_t> order = data_order(tensors);
  const std::string head = header(tensors, order, path.string());
  Unfinished file(path, Unfinished::Kind::file);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(file.path().c_str(), "wb"),
                                                            std::fclose);
  const auto check = [&](bool done) {
    if (!done) throw Error("{}: cannot be written ({})", path.string(), std::strerror(errno));
  };
  check(out != nullptr && std::fwrite(head.data(), 1, head.size(), out.get()) == head.size());
  for (const std::size_t i : order) {
    const Tensor tensor = tensors[i].read();
    const std::vector<std::byte> pairs =
        is_packed_in_safetensors(tensors[i]) ? in_pairs(tensor.bytes()) : std::vector<std::byte>();
    const auto bytes =
        is_packed_in_safetensors(tensors[i]) ? std::span<const std::byte>(pairs) : tensor.bytes();
    if (static_cast<std::int64_t>(bytes.size()) != bytes_of(tensors[i]))
      throw Error("{}: tensor '{}' has {} bytes, expected {}", path.string(), tensors[i].name, bytes.size(),
                  bytes_of(tensors[i]));
    check(bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), out.get()) == bytes.size());
  }
  check(std::fflush(out.get()) == 0);
  file.finish();
}

}  // namespace assay
