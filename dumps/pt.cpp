#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "assay/dumps/byte_order.h"
#include "assay/dumps/claim.h"
#include "assay/dumps/pickle.h"
#include "assay/dumps/readers.h"
#include "assay/dumps/zip.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

constexpr std::size_t max_depth = 64, max_tensors = 1'000'000;
// A view with stride 0 (expand) may be larger than its storage; this much is believed.
constexpr std::int64_t max_expanded = std::int64_t{1} << 28;

struct StorageClass {
  std::string_view name;
  DType dtype;
};
constexpr StorageClass storage_classes[] = {
    {"DoubleStorage", DType::float64},    {"FloatStorage", DType::float32}, {"HalfStorage", DType::float16},
    {"BFloat16Storage", DType::bfloat16}, {"LongStorage", DType::int64},    {"IntStorage", DType::int32},
    {"ShortStorage", DType::int16},       {"CharStorage", DType::int8},     {"ByteStorage", DType::uint8},
    {"BoolStorage", DType::boolean}};

/// A tensor as the pickle describes it: a strided view of a storage.
struct View {
  const ZipArchive::Member* storage = nullptr;
  DType dtype = DType::float32;
  Shape shape, strides;
  std::int64_t offset = 0;
};

class PtDump : public Dump {
 public:
  explicit PtDump(std::shared_ptr<const MappedFile> file) : archive_(std::move(file)) {
    path = archive_.file().path();
    format = "pt";
    const ZipArchive::Member& member = find_pickle();
    prefix_ = member.name.substr(0, member.name.size() - std::string_view("data.pkl").size());
    if (const auto* order = archive_.find(prefix_ + "byteorder")) {
      const auto content = archive_.read(*order, true);
      const std::string_view text(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size());
      if (text != "little" && text != "big")
        throw Error("{}: byteorder is '{}', expected little or big", path.string(), text);
      big_endian_ = text == "big";
    }
    const auto content = archive_.read(member, true);
    walk(Pickle(content.bytes, path.string() + ": " + member.name));
  }
  Tensor read(std::size_t index) const override {
    const View& view = views_.at(index);
    const std::int64_t count = element_count(view.shape);
    if (count == 0) return {view.dtype, view.shape};
    const std::size_t size = size_of(view.dtype), bytes = static_cast<std::size_t>(count) * size;
    return within_memory(bytes, location(index), [&] { return gather(view, bytes); });
  }
  std::string location(std::size_t index) const override {
    return fmt::format("{}: {}", path.string(), records.at(index).id.module);
  }

 private:
  // Of a view that is not empty, so that the products of its extents are at most their whole product.
  Tensor gather(const View& view, std::size_t bytes) const {
    const std::size_t size = size_of(view.dtype);
    ZipArchive::Content content = archive_.read(*view.storage, true);
    if (big_endian_ && size > 1) content = swapped(content, size);
    Shape dense(view.shape.size(), 1);
    for (std::size_t d = dense.size(); d-- > 1;) dense[d - 1] = dense[d] * view.shape[d];
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

  static ZipArchive::Content swapped(const ZipArchive::Content& content, std::size_t size) {
    auto copy = std::make_shared<std::vector<std::byte>>(
        byte_swapped({content.bytes.begin(), content.bytes.end()}, size));
    const std::span<const std::byte> bytes(*copy);
    return {bytes, std::move(copy)};
  }

  const ZipArchive::Member& find_pickle() const {
    const ZipArchive::Member* found = nullptr;
    for (const ZipArchive::Member& member : archive_.members()) {
      if (!member.name.ends_with("/data.pkl")) continue;
      if (found != nullptr)
        throw Error("{}: has two pickles, {} and {}", path.string(), found->name, member.name);
      found = &member;
    }
    if (found == nullptr) throw Error("{}: has no member data.pkl: it is not a .pt file", path.string());
    return *found;
  }

  // Nested dicts and lists in their order, names joined by '.'. A container that is reached twice is walked
  // once: shared lists can stand for 2^40 paths, and circles for endless ones.
  void walk(const Pickle& pickle) {
    struct Level {
      const Pickle::Value* container;
      std::size_t next;
      std::string stem;
    };
    std::vector<Level> levels;
    std::unordered_set<Ref> seen;
    std::size_t others = 0, repeated = 0;
    const auto visit = [&](Ref ref, std::string name) {
      const Pickle::Value& value = pickle.at(ref);
      if (value.kind == Kind::dict || value.kind == Kind::list || value.kind == Kind::tuple) {
        if (!value.items.empty() && !seen.insert(ref).second) {
          ++repeated;
          return;
        }
        if (levels.size() == max_depth || name.size() > max_name_length) {
          throw Error("{}: a dict or list is nested deeper than {} or its name is longer than {}",
                      path.string(), max_depth, max_name_length);
        }
        if (!name.empty()) name += '.';
        levels.push_back({&value, 0, std::move(name)});
      } else if (value.kind == Kind::call || value.kind == Kind::persistent) {
        add(pickle, ref, name);
      } else {
        ++others;
      }
    };
    visit(pickle.root(), "");
    while (!levels.empty()) {
      Level& level = levels.back();
      const std::vector<Ref>& items = level.container->items;
      if (level.next == items.size()) {
        levels.pop_back();
        continue;
      }
      const bool is_dict = level.container->kind == Kind::dict;
      std::string name =
          level.stem + (is_dict ? key_text(pickle, items[level.next]) : std::to_string(level.next));
      const Ref item = items[level.next + (is_dict ? 1 : 0)];
      level.next += is_dict ? 2 : 1;
      visit(item, std::move(name));
    }
    if (others != 0)
      notes.push_back(fmt::format("{}: {} values are not tensors; left out", path.string(), others));
    if (repeated != 0)
      notes.push_back(
          fmt::format("{}: {} lists or dicts occur again; left out there", path.string(), repeated));
  }

  static std::string key_text(const Pickle& pickle, Ref ref) {
    const Pickle::Value& key = pickle.at(ref);
    if (key.kind == Kind::text) return std::string(key.text);
    if (key.kind == Kind::integer || key.kind == Kind::boolean) return std::to_string(key.integer);
    return fmt::format("<key {}>", ref);
  }

  void add(const Pickle& pickle, Ref ref, const std::string& name) {
    std::string why;
    std::optional<View> view = parse_tensor(pickle, ref, name, why);
    if (!view) {
      left_out.push_back(fmt::format("{}: '{}' is {}", path.string(), name, why));
      return;
    }
    if (records.size() == max_tensors) throw Error("{}: more than {} tensors", path.string(), max_tensors);
    records.push_back(plain_record(name, view->dtype, view->shape, records.size()));
    views_.push_back(std::move(*view));
  }

  /// Nothing (and why) for objects that are no plain tensors; Error for tensors that contradict themselves.
  std::optional<View> parse_tensor(const Pickle& pickle, Ref ref, const std::string& name,
                                   std::string& why) const {
    const std::string where = path.string() + ": tensor '" + name + "'";
    // Parameters and tensors with attributes are wrapped; the wrapping ends, as each layer is an older value.
    for (int layer = 0; layer < 4; ++layer) {
      const Pickle::Value& call = pickle.at(ref);
      if (call.kind != Kind::call) break;
      const Pickle::Value& function = pickle.at(call.items[0]);
      const Pickle::Value& arguments = pickle.at(call.items[1]);
      if (function.kind != Kind::global || arguments.kind != Kind::tuple) break;
      why = fmt::format("an object made by {}.{}, which is not known", function.text, function.text2);
      const std::vector<Ref>& args = arguments.items;
      const bool in_utils = function.text == "torch._utils";
      if (in_utils &&
          (function.text2 == "_rebuild_parameter" || function.text2 == "_rebuild_parameter_with_state")) {
        if (args.empty()) throw Error("{}: a parameter without a tensor", where);
        ref = args[0];
      } else if (in_utils && (function.text2 == "_rebuild_tensor" || function.text2 == "_rebuild_tensor_v2" ||
                              function.text2 == "_rebuild_tensor_v3")) {
        if (args.size() < (function.text2 == "_rebuild_tensor_v3" ? 7U : 4U))
          throw Error("{}: too few arguments", where);
        return parse_view(pickle, args, function.text2 == "_rebuild_tensor_v3", where, why);
      } else {
        return std::nullopt;
      }
    }
    if (why.empty()) why = "an object, not a tensor";
    return std::nullopt;
  }

  std::optional<View> parse_view(const Pickle& pickle, const std::vector<Ref>& args, bool is_v3,
                                 const std::string& where, std::string& why) const {
    const Pickle::Value& storage = pickle.at(args[0]);
    const Pickle::Value* id = storage.kind == Kind::persistent ? &pickle.at(storage.items[0]) : nullptr;
    if (id == nullptr || id->kind != Kind::tuple || id->items.size() < 5 ||
        pickle.at(id->items[0]).text != "storage" || pickle.at(id->items[1]).kind != Kind::global ||
        pickle.at(id->items[2]).kind != Kind::text || pickle.at(id->items[4]).kind != Kind::integer ||
        pickle.at(args[1]).kind != Kind::integer) {
      throw Error("{}: its storage is not described as torch.save does", where);
    }
    const std::string_view class_name = pickle.at(id->items[1]).text2;
    const std::string_view key = pickle.at(id->items[2]).text;
    std::optional<DType> dtype;
    bool is_untyped = class_name == "UntypedStorage";
    if (is_v3) {
      const Pickle::Value& word = pickle.at(args[6]);
      if (word.kind == Kind::global && word.text == "torch") dtype = parse_dtype(word.text2);
      if (!dtype) why = fmt::format("a tensor of {}", word.text2);
    } else {
      for (const StorageClass& known : storage_classes) {
        if (known.name == class_name) dtype = known.dtype;
      }
      if (!dtype) why = fmt::format("a tensor in a {}", class_name);
    }
    if (!dtype) return std::nullopt;

    View view;
    view.dtype = *dtype;
    view.offset = pickle.at(args[1]).integer;
    view.shape = integers(pickle, args[2], where);
    view.strides = integers(pickle, args[3], where);
    const bool is_number = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
    view.storage = is_number ? archive_.find(prefix_ + "data/" + std::string(key)) : nullptr;
    if (view.storage == nullptr) throw Error("{}: its storage '{}' is not in the file", where, key);
    std::int64_t bytes = pickle.at(id->items[4]).integer;
    if (bytes < 0 ||
        (!is_untyped && __builtin_mul_overflow(bytes, static_cast<std::int64_t>(size_of(*dtype)), &bytes)) ||
        static_cast<std::uint64_t>(bytes) != view.storage->size) {
      throw Error("{}: its storage should have {} {}, but '{}' has {} bytes", where,
                  pickle.at(id->items[4]).integer, is_untyped ? "bytes" : name_of(*dtype), view.storage->name,
                  view.storage->size);
    }
    if (view.storage->size % size_of(*dtype) != 0) {
      throw Error("{}: its storage of {} bytes is no whole number of elements of {}", where,
                  view.storage->size, name_of(*dtype));
    }
    check_inside(view, where);
    return view;
  }

  static std::string name_of(DType dtype) { return std::string(assay::name(dtype)); }

  static Shape integers(const Pickle& pickle, Ref ref, const std::string& where) {
    // torch.Size is written as a plain tuple, or as a call with one.
    const Pickle::Value* value = &pickle.at(ref);
    if (value->kind == Kind::call && pickle.is_global(value->items[0], "torch", "Size")) {
      value = &pickle.at(value->items[1]);
      if (value->items.size() == 1) value = &pickle.at(value->items[0]);
    }
    if (value->kind != Kind::tuple || value->items.size() > 64)
      throw Error("{}: its shape or strides are damaged", where);
    Shape result;
    for (const Ref item : value->items) {
      if (pickle.at(item).kind != Kind::integer) throw Error("{}: its shape or strides are damaged", where);
      result.push_back(pickle.at(item).integer);
    }
    return result;
  }

  void check_inside(const View& view, const std::string& where) const {
    const auto elements = static_cast<std::int64_t>(view.storage->size / size_of(view.dtype));
    bool inside = view.shape.size() == view.strides.size() && view.offset >= 0;
    std::int64_t count = 1, last = view.offset;
    for (std::size_t d = 0; inside && d < view.shape.size(); ++d) {
      std::int64_t reach = 0;
      inside = view.shape[d] >= 0 && view.strides[d] >= 0 &&
               !__builtin_mul_overflow(count, view.shape[d], &count) &&
               (view.shape[d] == 0 || (!__builtin_mul_overflow(view.shape[d] - 1, view.strides[d], &reach) &&
                                       !__builtin_add_overflow(last, reach, &last)));
    }
    const bool too_large = count > elements && count > max_expanded;
    if (!inside || (count != 0 && last >= elements) || too_large) {
      throw Error("{}: shape {}, strides {} and offset {} do not fit its storage of {} elements", where,
                  to_string(view.shape), to_string(view.strides), view.offset, elements);
    }
  }

  ZipArchive archive_;
  std::string prefix_;
  bool big_endian_ = false;
  std::vector<View> views_;
};

// torch.save before 1.6, or with _use_new_zipfile_serialization=False: a pickle of its magic number comes
// first.
bool is_old(const MappedFile& file) {
  return has_magic(file, "\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19", 2);
}

}  // namespace

bool fits_pt(const std::shared_ptr<const MappedFile>& file) {
  if (is_old(*file)) return true;
  if (!is_zip(*file)) return false;
  const ZipArchive archive(file);
  const auto is_pickle = [](const auto& member) { return member.name.ends_with("/data.pkl"); };
  return std::any_of(archive.members().begin(), archive.members().end(), is_pickle);
}

std::unique_ptr<Dump> open_pt(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  if (is_old(*file)) {
    throw Error("{}: a .pt file of the old form (before torch 1.6): load and save it again with torch.save",
                file->path().string());
  }
  return std::make_unique<PtDump>(std::move(file));
}

}  // namespace assay
