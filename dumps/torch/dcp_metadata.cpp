#include "assay/dumps/torch/dcp_metadata.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "assay/dumps/io/file.h"
#include "assay/dumps/torch/view.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

constexpr std::string_view module = "torch.distributed.checkpoint.metadata";
// Until torch 2.2 the properties of a tensor were defined here.
constexpr std::string_view old_module = "torch.distributed._shard.sharded_tensor.metadata";

// All that torch (and Megatron, which adds its own top) calls in a .metadata.
constexpr std::string_view known_calls[] = {
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
    "torch.Size",
    "torch.device",
    "torch.serialization._get_layout",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath"};

// Python 3.11 writes a member of an enum as getattr(class, name): the one getattr that is no attack.
bool is_memory_format(const Pickle& pickle, Ref call) {
  const std::vector<Ref>& arguments = pickle.arguments(call);
  if (arguments.size() != 2 || pickle.at(arguments[1]).kind != Kind::text) return false;
  const std::string_view member = pickle.at(arguments[1]).text;
  return (pickle.is_global(arguments[0], module, "_MEM_FORMAT_ENCODING") ||
          pickle.is_global(arguments[0], old_module, "MEM_FORMAT_ENCODING")) &&
         (member == "TORCH_CONTIGUOUS_FORMAT" || member == "TORCH_CHANNELS_LAST" ||
          member == "TORCH_PRESERVE_FORMAT");
}

class Reader {
 public:
  Reader(const Pickle& pickle, std::string_view where) : pickle_(pickle), where_(where) {}

  DcpMetadata run() {
    const std::string top = pickle_.global_name(pickle_.root());
    if (top != "torch.distributed.checkpoint.metadata.Metadata" &&
        top != "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata") {
      throw Error("{}: holds {}, expected {}.Metadata", where_, top.empty() ? "no object" : top, module);
    }
    check_calls();
    read_places(dict(pickle_.root(), "storage_data"));
    const std::vector<Ref>& tensors = dict(pickle_.root(), "state_dict_metadata");
    for (std::size_t i = 0; i < tensors.size(); i += 2) read_entry(tensors[i], tensors[i + 1]);
    for (const auto& [key, place] : places_) {
      if (!place.is_used && key.second)
        leave_out("'{}' at {} lies in {}, but is no part of a tensor", key.first, to_string(*key.second),
                  place.file);
    }
    if (objects_ != 0) {
      result_.notes.push_back(
          fmt::format("{}: {} entries are Python objects, not tensors; left out (first: '{}')", where_,
                      objects_, first_object_));
    }
    return std::move(result_);
  }

 private:
  struct Place {
    std::string_view file;
    std::uint64_t offset = 0, length = 0;
    bool is_transformed = false, is_used = false;
  };
  using Key = std::pair<std::string_view, std::optional<Shape>>;

  template <class... Args>
  void leave_out(fmt::format_string<Args...> format, Args&&... args) {
    result_.left_out.push_back(
        fmt::format("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...)));
  }

  void check_calls() {
    std::set<std::string> strangers;
    for (Ref ref = 0; ref < pickle_.values().size(); ++ref) {
      if (pickle_.at(ref).kind != Kind::call) continue;
      const std::string name = pickle_.global_name(ref);
      if (name == "builtins.getattr" || name == "__builtin__.getattr") {
        if (is_memory_format(pickle_, ref)) continue;
        throw Error("{}: asks for an attribute that no checkpoint needs: the file is not to be trusted",
                    where_);
      }
      if (std::find(std::begin(known_calls), std::end(known_calls), name) == std::end(known_calls))
        strangers.insert(name.empty() ? "something without a name" : name);
    }
    for (const std::string& name : strangers) leave_out("an object made by {}, which is not known", name);
  }

  Ref attribute(Ref object, std::string_view name) const {
    const auto found = pickle_.attribute(object, name);
    if (!found) {
      const std::string type = pickle_.global_name(object);
      throw Error("{}: {} has no {}", where_, type.empty() ? "something that is no object" : type, name);
    }
    return *found;
  }
  const std::vector<Ref>& dict(Ref object, std::string_view name) const {
    const Pickle::Value& value = pickle_.at(attribute(object, name));
    if (value.kind != Kind::dict) throw Error("{}: its {} is no dict", where_, name);
    return value.items;
  }
  std::string_view text(Ref object, std::string_view name) const {
    const Pickle::Value& value = pickle_.at(attribute(object, name));
    if (value.kind != Kind::text) throw Error("{}: a {} is no text", where_, name);
    return value.text;
  }
  std::uint64_t size(Ref object, std::string_view name) const {
    const Pickle::Value& value = pickle_.at(attribute(object, name));
    if (value.kind != Kind::integer || value.integer < 0) throw Error("{}: a {} is no size", where_, name);
    return static_cast<std::uint64_t>(value.integer);
  }
  Shape shape(Ref object, std::string_view name, std::string_view tensor) const {
    return pickled_integers(pickle_, attribute(object, name), fmt::format("{}: '{}'", where_, tensor), name);
  }

  void read_places(const std::vector<Ref>& items) {
    for (std::size_t i = 0; i < items.size(); i += 2) {
      Key key{text(items[i], "fqn"), std::nullopt};
      const auto offset = pickle_.attribute(items[i], "offset");
      if (offset && pickle_.at(*offset).kind != Kind::none) key.second = shape(items[i], "offset", key.first);
      Place place;
      place.file = text(items[i + 1], "relative_path");
      place.offset = size(items[i + 1], "offset");
      place.length = size(items[i + 1], "length");
      const auto transform = pickle_.attribute(items[i + 1], "transform_descriptors");
      place.is_transformed = transform && !pickle_.at(*transform).items.empty();
      if (!is_plain_name(place.file)) {
        throw Error("{}: '{}' lies in the file '{}', expected letters, digits, '_', '.' and '-' only", where_,
                    key.first, place.file);
      }
      if (!places_.emplace(key, place).second) {
        throw Error("{}: '{}' at {} has two places in the files", where_, key.first,
                    key.second ? to_string(*key.second) : "no offset");
      }
    }
  }

  void read_entry(Ref key, Ref entry) {
    const std::string_view name = pickle_.at(key).text;
    if (pickle_.at(key).kind != Kind::text) throw Error("{}: the name of a tensor is no text", where_);
    if (!names_.insert(name).second) throw Error("{}: '{}' is there twice", where_, name);
    if (pickle_.is_call(entry, module, "BytesStorageMetadata")) {
      if (objects_++ == 0) first_object_ = name;
      return;
    }
    if (!pickle_.is_call(entry, module, "TensorStorageMetadata")) {
      leave_out("'{}' is a {}, which is not known", name, pickle_.global_name(entry));
      return;
    }
    const auto dtype = dtype_of(attribute(entry, "properties"));
    if (!dtype) {
      leave_out("'{}' is a tensor of an unknown dtype", name);
      return;
    }
    const Shape global = shape(entry, "size", name);
    std::int64_t count = 1;
    for (const std::int64_t extent : global) {
      if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
        throw Error("{}: {} is no shape of '{}'", where_, to_string(global), name);
    }
    const Pickle::Value& chunks = pickle_.at(attribute(entry, "chunks"));
    if (chunks.items.empty()) leave_out("'{}' has no chunks", name);
    for (const Ref chunk : chunks.items)
      read_chunk(chunk, {std::string(name), *dtype, global, {}, {}, {}, 0, 0});
  }

  // torch pickles the properties as a tuple whose first item is the dtype; until 2.2 a dict could stand
  // there.
  std::optional<DType> dtype_of(Ref properties) const {
    auto word = pickle_.attribute(properties, "dtype");
    const Pickle::Value& object = pickle_.at(properties);
    if (!word && object.kind == Kind::call && object.items.size() > 2) {
      const Pickle::Value& state = pickle_.at(object.items[2]);
      if (state.kind == Kind::tuple && !state.items.empty()) word = state.items[0];
    }
    if (!word || pickle_.at(*word).kind != Kind::global || pickle_.at(*word).text != "torch")
      return std::nullopt;
    return parse_dtype(pickle_.at(*word).text2);
  }

  void read_chunk(Ref ref, DcpChunk chunk) {
    chunk.offsets = shape(ref, "offsets", chunk.name);
    chunk.shape = shape(ref, "sizes", chunk.name);
    const std::size_t rank = chunk.global_shape.size();
    bool inside = chunk.offsets.size() == rank && chunk.shape.size() == rank;
    for (std::size_t d = 0; inside && d < rank; ++d) {
      inside = chunk.offsets[d] >= 0 && chunk.shape[d] >= 0 && chunk.offsets[d] <= chunk.global_shape[d] &&
               chunk.shape[d] <= chunk.global_shape[d] - chunk.offsets[d];
    }
    if (!inside) {
      throw Error("{}: '{}' of shape {} has a chunk of {} at {}, which is not inside", where_, chunk.name,
                  to_string(chunk.global_shape), to_string(chunk.shape), to_string(chunk.offsets));
    }
    const auto place = places_.find({chunk.name, chunk.offsets});
    if (place == places_.end()) {
      leave_out("'{}' has a chunk of {} at {} that is in no file", chunk.name, to_string(chunk.shape),
                to_string(chunk.offsets));
      return;
    }
    if (place->second.is_used)
      throw Error("{}: '{}' has two chunks at {}", where_, chunk.name, to_string(chunk.offsets));
    place->second.is_used = true;
    if (place->second.is_transformed) {
      leave_out("'{}' at {} was compressed or transformed when it was saved", chunk.name,
                to_string(chunk.offsets));
      return;
    }
    chunk.file = std::string(place->second.file);
    chunk.offset = place->second.offset;
    chunk.length = place->second.length;
    result_.chunks.push_back(std::move(chunk));
  }

  const Pickle& pickle_;
  std::string_view where_;
  DcpMetadata result_;
  std::map<Key, Place> places_;
  std::unordered_set<std::string_view> names_;
  std::size_t objects_ = 0;
  std::string_view first_object_;
};

}  // namespace

DcpMetadata read_dcp_metadata(const Pickle& pickle, std::string_view where) {
  return Reader(pickle, where).run();
}

}  // namespace assay
