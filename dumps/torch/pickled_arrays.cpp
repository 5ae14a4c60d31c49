#include "assay/dumps/torch/pickled_arrays.h"

#include <fmt/core.h>

#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

// numpy 2 moved its modules.
bool is_numpy(const Pickle& pickle, Ref ref, std::string_view module, std::string_view name) {
  return pickle.is_global(ref, fmt::format("numpy.core.{}", module), name) ||
         pickle.is_global(ref, fmt::format("numpy._core.{}", module), name);
}

// Below protocol 3 bytes are written as text whose characters are their values.
bool from_latin1(std::string_view text, std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      bytes.push_back(std::byte{c});
      continue;
    }
    const bool is_pair = (c == 0xc2 || c == 0xc3) && i + 1 < text.size() &&
                         (static_cast<unsigned char>(text[i + 1]) & 0xc0) == 0x80;
    if (!is_pair) return false;
    bytes.push_back(static_cast<std::byte>((c & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f)));
  }
  return true;
}

}  // namespace

PickledArrays::Bytes PickledArrays::bytes_of(Ref ref) {
  const bool is_bytes =
      pickle_.is_call(ref, "__builtin__", "bytes") || pickle_.is_call(ref, "builtins", "bytes");
  if (is_bytes && pickle_.arguments(ref).empty()) return std::make_shared<std::vector<std::byte>>();
  Ref text = ref;
  const bool is_encoded = pickle_.is_call(ref, "_codecs", "encode") && !pickle_.arguments(ref).empty();
  if (is_encoded) text = pickle_.arguments(ref)[0];
  const auto [found, is_new] = decoded_.try_emplace(text);
  if (!is_new) return found->second;
  const Pickle::Value& value = pickle_.at(text);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  const std::span<const std::byte> raw = std::as_bytes(std::span(value.text));
  if (value.kind == Kind::bytes) {
    bytes->assign(raw.begin(), raw.end());
  } else if (!is_encoded || value.kind != Kind::text || !from_latin1(value.text, *bytes)) {
    return nullptr;
  }
  return found->second = std::move(bytes);
}

// numpy.dtype('f4', False, True) with the state (3, '<', None, ..), or with a class of ml_dtypes.
std::optional<PickledArrays::Type> PickledArrays::parse_type(Ref ref, std::string& why) const {
  why = "a numpy array of an unknown dtype";
  if (!pickle_.is_call(ref, "numpy", "dtype") || pickle_.arguments(ref).empty()) return std::nullopt;
  const Pickle::Value& word = pickle_.at(pickle_.arguments(ref)[0]);
  Type type;
  if (word.kind == Kind::text) {
    constexpr std::pair<std::string_view, DType> codes[] = {
        {"f8", DType::float64}, {"f4", DType::float32}, {"f2", DType::float16}, {"i8", DType::int64},
        {"i4", DType::int32},   {"i2", DType::int16},   {"i1", DType::int8},    {"u8", DType::uint64},
        {"u4", DType::uint32},  {"u2", DType::uint16},  {"u1", DType::uint8},   {"b1", DType::boolean}};
    bool known = false;
    for (const auto& [code, dtype] : codes) {
      if (code != word.text) continue;
      type.dtype = dtype;
      known = true;
    }
    if (!known) {
      why = fmt::format("a numpy array of dtype '{}'", word.text);
      return std::nullopt;
    }
  } else {
    const bool is_known = word.kind == Kind::global && word.text == "ml_dtypes" && parse_dtype(word.text2);
    if (!is_known) return std::nullopt;
    type.dtype = *parse_dtype(word.text2);
  }
  const Pickle::Value& call = pickle_.at(ref);
  if (call.items.size() > 2) {
    const Pickle::Value& state = pickle_.at(call.items[2]);
    if (state.kind == Kind::tuple && state.items.size() > 1)
      type.big_endian = pickle_.at(state.items[1]).text == ">";
  }
  return type;
}

std::optional<TorchView> PickledArrays::view(Ref type_ref, Shape shape, bool fortran, Ref data,
                                             std::string_view where, std::string& why) {
  const auto type = parse_type(type_ref, why);
  if (!type) return std::nullopt;
  const Bytes bytes = bytes_of(data);
  if (bytes == nullptr) {
    why = "a numpy array whose elements are not given as bytes";
    return std::nullopt;
  }
  const std::size_t size = size_of(type->dtype);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
      throw Error("{}: shape {} is no shape of an array", where, to_string(shape));
  }
  if (bytes->size() % size != 0 || static_cast<std::uint64_t>(count) != bytes->size() / size) {
    throw Error("{}: shape {} of {} needs {} elements, the pickle has {} bytes", where, to_string(shape),
                name(type->dtype), count, bytes->size());
  }
  TorchView view;
  view.dtype = type->dtype;
  view.big_endian = type->big_endian;
  view.strides.assign(shape.size(), 1);
  // Of an empty array no stride is ever used.
  for (std::size_t i = 1; count != 0 && i < shape.size(); ++i) {
    const std::size_t d = fortran ? i : shape.size() - 1 - i, inner = fortran ? d - 1 : d + 1;
    view.strides[d] = view.strides[inner] * shape[inner];
  }
  view.shape = std::move(shape);
  view.content = {*bytes, bytes};
  return view;
}

std::optional<TorchView> PickledArrays::parse(Ref call, std::string_view where, std::string& why) {
  const Pickle::Value& value = pickle_.at(call);
  if (value.kind != Kind::call) return std::nullopt;
  const Ref function = value.items[0];
  const std::vector<Ref>& arguments = pickle_.arguments(call);
  if (is_numpy(pickle_, function, "multiarray", "scalar") && arguments.size() == 2)
    return view(arguments[0], {}, false, arguments[1], where, why);
  if (is_numpy(pickle_, function, "numeric", "_frombuffer") && arguments.size() == 4) {
    return view(arguments[1], pickled_integers(pickle_, arguments[2], where, "shape"),
                pickle_.at(arguments[3]).text == "F", arguments[0], where, why);
  }
  if (!is_numpy(pickle_, function, "multiarray", "_reconstruct")) return std::nullopt;
  // (version, shape, dtype, Fortran order, data)
  const Pickle::Value* state = value.items.size() > 2 ? &pickle_.at(value.items[2]) : nullptr;
  if (state == nullptr || state->kind != Kind::tuple || state->items.size() != 5)
    throw Error("{}: a numpy array without its five items of state", where);
  return view(state->items[2], pickled_integers(pickle_, state->items[1], where, "shape"),
              pickle_.at(state->items[3]).integer != 0, state->items[4], where, why);
}

}  // namespace assay
