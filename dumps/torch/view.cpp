#include "assay/dumps/torch/view.h"

#include <fmt/core.h>

#include <algorithm>

#include "assay/dumps/io/byte_order.h"
#include "assay/dumps/io/claim.h"
#include "assay/dumps/layout/layout.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

// A view with stride 0 (expand) may be larger than its storage; this much is believed.
constexpr std::int64_t max_expanded = std::int64_t{1} << 28;
constexpr std::size_t max_rank = 64;  // of torch

struct StorageClass {
  std::string_view name;
  DType dtype;
};
constexpr StorageClass storage_classes[] = {
    {"DoubleStorage", DType::float64},    {"FloatStorage", DType::float32}, {"HalfStorage", DType::float16},
    {"BFloat16Storage", DType::bfloat16}, {"LongStorage", DType::int64},    {"IntStorage", DType::int32},
    {"ShortStorage", DType::int16},       {"CharStorage", DType::int8},     {"ByteStorage", DType::uint8},
    {"BoolStorage", DType::boolean}};

// torch marks lazily negated and conjugated tensors in a dict behind the other arguments.
bool has_flag(const Pickle& pickle, Ref metadata) {
  for (const std::string_view flag : {"neg", "conj"}) {
    const auto value = pickle.find(metadata, flag);
    if (value && pickle.at(*value).integer != 0) return true;
  }
  return false;
}

// Elements of the storage (or of its part) that the view may use; sets where the part begins.
std::int64_t usable_elements(const StorageId& id, DType dtype, const TorchStorages& storages,
                             std::int64_t& begin, std::string_view where) {
  const bool is_number = !id.key.empty() && id.key.find_first_not_of("0123456789") == std::string_view::npos;
  const auto size = is_number ? storages.size(id.key) : std::nullopt;
  if (!size) throw Error("{}: its storage '{}' is not in the file", where, id.key);
  std::int64_t bytes = 0;
  if (id.elements < 0 ||
      __builtin_mul_overflow(id.elements, static_cast<std::int64_t>(id.element_size()), &bytes) ||
      static_cast<std::uint64_t>(bytes) != *size) {
    throw Error("{}: its storage should have {} {}, but '{}' has {} bytes", where, id.elements,
                id.dtype ? name(*id.dtype) : "bytes", id.key, *size);
  }
  if (*size % size_of(dtype) != 0) {
    throw Error("{}: its storage of {} bytes is no whole number of elements of {}", where, *size,
                name(dtype));
  }
  const auto elements = static_cast<std::int64_t>(*size / size_of(dtype));
  if (!id.part) return elements;
  begin = id.part->first;
  if (begin < 0 || begin > elements || id.part->second < 0 || id.part->second > elements - begin) {
    throw Error("{}: its storage is {} elements at {} of '{}', which has {}", where, id.part->second, begin,
                id.key, elements);
  }
  return id.part->second;
}

ZipArchive::Content swapped(const ZipArchive::Content& content, std::size_t size) {
  auto copy = std::make_shared<std::vector<std::byte>>(
      byte_swapped({content.bytes.begin(), content.bytes.end()}, size));
  const std::span<const std::byte> bytes(*copy);
  return {bytes, std::move(copy)};
}

// Of a view that is not empty, so that the products of its extents are at most their whole product.
Tensor gather(const TorchView& view, const TorchStorages& storages, std::size_t bytes) {
  const std::size_t size = size_of(view.dtype);
  const bool is_stored = !view.storage.empty();
  ZipArchive::Content content = is_stored ? storages.read(view.storage) : view.content;
  if (size > 1 && (is_stored ? storages.big_endian : view.big_endian)) content = swapped(content, size);
  const Shape dense = dense_strides(view.shape);
  bool is_dense = true;
  for (std::size_t d = 0; d < dense.size(); ++d)
    is_dense = is_dense && (view.shape[d] == 1 || view.strides[d] == dense[d]);
  if (is_dense) {
    const std::size_t begin = static_cast<std::size_t>(view.offset) * size;
    return {view.dtype, view.shape, content.bytes.subspan(begin, bytes), content.owner};
  }
  const auto elements = static_cast<std::int64_t>(content.bytes.size() / size);
  return gather_view({view.dtype, {elements}, content.bytes, content.owner}, view.shape, view.strides,
                     view.offset);
}

}  // namespace

StorageId parse_storage_id(const Pickle& pickle, Ref persistent, std::string_view where) {
  const Pickle::Value& value = pickle.at(persistent);
  const Pickle::Value* id = value.kind == Kind::persistent ? &pickle.at(value.items[0]) : nullptr;
  const auto is = [&](std::size_t i, Kind kind) { return pickle.at(id->items[i]).kind == kind; };
  if (id == nullptr || id->kind != Kind::tuple || id->items.size() < 5 ||
      pickle.at(id->items[0]).text != "storage" || !is(1, Kind::global) || !is(2, Kind::text) ||
      !is(4, Kind::integer)) {
    throw Error("{}: its storage is not described as torch.save does", where);
  }
  StorageId result;
  result.class_name = pickle.at(id->items[1]).text2;
  result.key = pickle.at(id->items[2]).text;
  result.elements = pickle.at(id->items[4]).integer;
  result.is_untyped = result.class_name == "UntypedStorage";
  for (const StorageClass& known : storage_classes) {
    if (known.name == result.class_name) result.dtype = known.dtype;
  }
  if (id->items.size() > 5 && !is(5, Kind::none)) {
    const Pickle::Value& part = pickle.at(id->items[5]);
    if (part.kind != Kind::tuple || part.items.size() != 3 ||
        pickle.at(part.items[1]).kind != Kind::integer || pickle.at(part.items[2]).kind != Kind::integer) {
      throw Error("{}: the part of its storage is not described as torch.save does", where);
    }
    result.part = {pickle.at(part.items[1]).integer, pickle.at(part.items[2]).integer};
  }
  return result;
}

std::optional<TorchView> parse_torch_view(const Pickle& pickle, std::string_view function,
                                          const std::vector<Ref>& arguments, const TorchStorages& storages,
                                          std::string_view where, std::string& why) {
  const bool is_v3 = function == "_rebuild_tensor_v3";
  if (!is_v3 && function != "_rebuild_tensor" && function != "_rebuild_tensor_v2") {
    why = fmt::format("an object made by torch._utils.{}, which is not known", function);
    return std::nullopt;
  }
  if (arguments.size() < (is_v3 ? 7U : 4U) || pickle.at(arguments[1]).kind != Kind::integer)
    throw Error("{}: is not described as torch.save does", where);
  const StorageId id = parse_storage_id(pickle, arguments[0], where);
  std::optional<DType> dtype = id.dtype;
  if (is_v3) {
    const Pickle::Value& word = pickle.at(arguments[6]);
    dtype = word.kind == Kind::global && word.text == "torch" ? parse_dtype(word.text2) : std::nullopt;
    if (!dtype || id.element_size() == 0) why = fmt::format("a tensor of {}", word.text2);
  } else if (!dtype) {
    why = fmt::format("a tensor in a {}", id.class_name);
  }
  const std::size_t metadata = is_v3 ? 7 : 6;
  if (arguments.size() > metadata && has_flag(pickle, arguments[metadata]))
    why = "a tensor whose elements are yet to be negated or conjugated: save a clone() of it";
  if (!why.empty()) return std::nullopt;

  TorchView view;
  view.dtype = *dtype;
  view.shape = pickled_integers(pickle, arguments[2], where, "shape");
  view.strides = pickled_integers(pickle, arguments[3], where, "stride");
  view.offset = pickle.at(arguments[1]).integer;
  view.storage = std::string(id.key);
  std::int64_t begin = 0;
  check_inside(view, usable_elements(id, *dtype, storages, begin, where), where);
  if (__builtin_add_overflow(view.offset, begin, &view.offset)) view.offset = 0;  // only of an empty view
  return view;
}

Tensor read_torch_view(const TorchView& view, const TorchStorages& storages, std::string_view where) {
  const std::int64_t count = element_count(view.shape);
  if (count == 0) return {view.dtype, view.shape};
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(view.dtype);
  return within_memory(bytes, where, [&] { return gather(view, storages, bytes); });
}

Shape pickled_integers(const Pickle& pickle, Ref ref, std::string_view where, std::string_view what) {
  // torch.Size is a call with a tuple, or bare.
  if (pickle.is_call(ref, "torch", "Size") && pickle.arguments(ref).size() == 1)
    ref = pickle.arguments(ref)[0];
  const Pickle::Value& value = pickle.at(ref);
  bool good = (value.kind == Kind::tuple || value.kind == Kind::list) && value.items.size() <= max_rank;
  Shape result;
  for (std::size_t i = 0; good && i < value.items.size(); ++i) {
    good = pickle.at(value.items[i]).kind == Kind::integer;
    result.push_back(pickle.at(value.items[i]).integer);
  }
  if (!good) throw Error("{}: its {} is damaged, expected at most {} integers", where, what, max_rank);
  return result;
}

void check_inside(const TorchView& view, std::int64_t elements, std::string_view where) {
  bool inside = view.shape.size() == view.strides.size() && view.offset >= 0;
  std::int64_t count = 1, last = view.offset;
  for (std::size_t d = 0; inside && d < view.shape.size(); ++d) {
    std::int64_t reach = 0;
    inside = view.shape[d] >= 0 && view.strides[d] >= 0 &&
             !__builtin_mul_overflow(count, std::max<std::int64_t>(view.shape[d], 1), &count) &&
             (view.shape[d] == 0 || (!__builtin_mul_overflow(view.shape[d] - 1, view.strides[d], &reach) &&
                                     !__builtin_add_overflow(last, reach, &last)));
  }
  const bool is_empty = std::ranges::find(view.shape, 0) != view.shape.end();
  const bool too_large = count > elements && count > max_expanded;
  if (!inside || (!is_empty && (last >= elements || too_large))) {
    throw Error("{}: shape {}, strides {} and offset {} do not fit its storage of {} elements", where,
                to_string(view.shape), to_string(view.strides), view.offset, elements);
  }
}

}  // namespace assay
