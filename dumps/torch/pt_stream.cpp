#include "assay/dumps/torch/pt_stream.h"

#include <fmt/core.h>

#include <unordered_map>

#include "assay/dumps/record/readers.h"
#include "assay/dumps/torch/tree.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;

constexpr std::string_view magic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t protocol = 1001;
// A tar archive says so here.
constexpr std::size_t tar_magic_at = 257;

/// The storages lie behind the pickles in the order of their keys, each after its number of elements.
/// Elements are little-endian on every machine. What size an element has only the tensors know.
class PtStream : public TorchStorages {
 public:
  PtStream(std::shared_ptr<const MappedFile> file, const Pickle& object, const Pickle& keys, std::size_t at)
      : file_(std::move(file)) {
    const std::string where = file_->path().string();
    const auto sizes = element_sizes(object, where);
    const Pickle::Value& list = keys.at(keys.root());
    if (list.kind != Kind::list) throw Error("{}: its fifth pickle is no list of storages", where);
    for (const Pickle::Ref item : list.items) {
      const std::string_view key = keys.at(item).text;
      const auto found = sizes.find(key);
      if (found == sizes.end() || found->second == 0)
        throw Error("{}: the storage '{}' is of no known type", where, key);
      const std::string what = fmt::format("storage '{}'", key);
      const auto count = load_little<std::uint64_t>(file_->range(at, 8, what), 0);
      at += 8;
      std::uint64_t bytes = 0;
      if (__builtin_mul_overflow(count, found->second, &bytes))
        throw Error("{}: {} claims {} elements", where, what, count);
      if (!storages_.emplace(key, file_->range(at, bytes, what)).second)
        throw Error("{}: {} is there twice", where, what);
      at += bytes;
    }
    if (at != file_->bytes().size()) {
      throw Error("{}: has {} bytes, but its last storage ends at {}", where, file_->bytes().size(), at);
    }
  }
  std::optional<std::uint64_t> size(std::string_view key) const override {
    const auto found = storages_.find(std::string(key));
    return found == storages_.end() ? std::nullopt : std::optional(found->second.size());
  }
  ZipArchive::Content read(std::string_view key) const override {
    return {storages_.at(std::string(key)), file_};
  }

 private:
  static std::unordered_map<std::string_view, std::uint64_t> element_sizes(const Pickle& object,
                                                                           const std::string& where) {
    std::unordered_map<std::string_view, std::uint64_t> sizes;
    for (Pickle::Ref ref = 0; ref < object.values().size(); ++ref) {
      if (object.at(ref).kind != Kind::persistent) continue;
      if (is_module(object, ref)) continue;
      const StorageId id = parse_storage_id(object, ref, where);
      std::uint64_t size = id.element_size();
      for (const auto& [name, bytes] : other_classes) {
        if (id.class_name == name) size = bytes;
      }
      const auto [found, is_new] = sizes.emplace(id.key, size);
      if (!is_new && found->second != size)
        throw Error("{}: the storage '{}' has elements of {} and of {} bytes", where, id.key, found->second,
                    size);
    }
    return sizes;
  }
  // ('module', class, source file, source): torch kept the source code of saved modules here.
  static bool is_module(const Pickle& object, Pickle::Ref ref) {
    const Pickle::Value& id = object.at(object.at(ref).items[0]);
    return id.kind == Kind::tuple && !id.items.empty() && object.at(id.items[0]).text == "module";
  }

  // Their tensors are left out, but what lies behind them is not.
  static constexpr std::pair<std::string_view, std::uint64_t> other_classes[] = {{"ComplexFloatStorage", 8},
                                                                                 {"ComplexDoubleStorage", 16},
                                                                                 {"QInt8Storage", 1},
                                                                                 {"QUInt8Storage", 1},
                                                                                 {"QInt32Storage", 4}};

  std::shared_ptr<const MappedFile> file_;
  std::unordered_map<std::string, std::span<const std::byte>> storages_;
};

}  // namespace

bool is_pt_stream(const MappedFile& file) {
  // PROTO 2 to 5, (FRAME,) LONG1 of ten bytes
  return has_magic(file, "\x80") && (has_magic(file, magic, 4) || has_magic(file, magic, 13));
}

bool is_pt_tar(const MappedFile& file) {
  return has_magic(file, "ustar", tar_magic_at) &&
         file.text().substr(0, 1 << 20).find("sys_info") != std::string_view::npos;
}

std::unique_ptr<Dump> open_pt_stream(std::shared_ptr<const MappedFile> file) {
  const std::string where = file->path().string();
  if (is_pt_tar(*file)) {
    throw Error(
        "{}: a .pt file in the tar form of torch before 0.1.10, which is not read: load it with any later "
        "torch "
        "and save it again",
        where);
  }
  std::size_t at = 0;
  const auto next = [&](std::string_view what) {
    Pickle pickle(file->bytes().subspan(at), fmt::format("{}: {}", where, what));
    at += pickle.size();
    return pickle;
  };
  const Pickle number = next("magic number"), version = next("protocol version");
  if (number.at(number.root()).text != magic || version.at(version.root()).integer != protocol)
    throw Error("{}: not a .pt file of the old form, expected protocol version {}", where, protocol);
  next("system information");
  const Pickle object = next("saved object"), keys = next("list of storages");
  auto storages = std::make_unique<PtStream>(file, object, keys, at);
  return make_torch_dump(file->path(), std::move(storages), object);
}

}  // namespace assay
