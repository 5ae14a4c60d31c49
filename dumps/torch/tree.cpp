#include "assay/dumps/torch/tree.h"

#include <fmt/ranges.h>

#include <set>
#include <unordered_set>

#include "assay/dumps/record/readers.h"
#include "assay/dumps/torch/dtensor.h"
#include "assay/dumps/torch/pickled_arrays.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

constexpr std::size_t max_depth = 64, max_tensors = 1'000'000, max_listed = 8;
// Of all names together: one long name, shared, could stand before a million tensors.
constexpr std::size_t max_text = std::size_t{256} << 20;

// For each value, whether a storage, an array or bytes that could be anything can be reached from it.
std::vector<bool> find_holders(const Pickle& pickle) {
  const std::vector<Pickle::Value>& values = pickle.values();
  // The parents of value i are parents[begin[i]] to parents[begin[i + 1]].
  std::vector<std::size_t> begin(values.size() + 2);
  for (const Pickle::Value& value : values)
    for (const Ref item : value.items) ++begin[item + 2];
  for (std::size_t i = 2; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<Ref> parents(begin.back());
  for (Ref ref = 0; ref < values.size(); ++ref)
    for (const Ref item : values[ref].items) parents[begin[item + 1]++] = ref;

  std::vector<bool> holds(values.size());
  std::vector<Ref> next;
  const auto mark = [&](Ref ref) {
    if (!holds[ref]) next.push_back(ref);
    holds[ref] = true;
  };
  for (Ref ref = 0; ref < values.size(); ++ref) {
    const Pickle::Value& value = values[ref];
    const bool is_tensor_like =
        value.kind == Kind::global && (value.text == "torch._utils" || value.text.starts_with("numpy"));
    if (value.kind == Kind::persistent || value.kind == Kind::bytes || is_tensor_like) mark(ref);
  }
  while (!next.empty()) {
    const Ref ref = next.back();
    next.pop_back();
    for (std::size_t i = begin[ref]; i < begin[ref + 1]; ++i) mark(parents[i]);
  }
  return holds;
}

bool is_set(const Pickle& pickle, Ref ref) {
  const std::string name = pickle.global_name(ref);
  return name == "builtins.set" || name == "__builtin__.set" || name == "builtins.frozenset" ||
         name == "__builtin__.frozenset";
}

class Walk {
 public:
  Walk(const Pickle& pickle, const TorchStorages& storages, std::string_view path)
      : pickle_(pickle), storages_(storages), path_(path), arrays_(pickle) {}

  // A container that is reached twice is walked once: shared lists can stand for 2^40 paths, and circles for
  // endless ones.
  TorchTree run() {
    visit(pickle_.root(), "");
    while (!levels_.empty()) {
      Level& level = levels_.back();
      const std::vector<Ref>& items = level.container->items;
      if (level.next == items.size()) {
        levels_.pop_back();
        continue;
      }
      const bool is_dict = level.container->kind == Kind::dict;
      std::string name = level.stem + (is_dict ? key_text(items[level.next]) : std::to_string(level.next));
      const Ref item = items[level.next + (is_dict ? 1 : 0)];
      level.next += is_dict ? 2 : 1;
      visit(item, std::move(name));
    }
    if (others_ != 0) note("{}: {} values are not tensors; left out", path_, others_);
    if (plain_objects_ != 0) {
      note("{}: {} objects hold no tensor; left out ({}{})", path_, plain_objects_,
           fmt::join(plain_names_, ", "), plain_names_.size() == max_listed ? ", .." : "");
    }
    if (repeated_ != 0) note("{}: {} lists or dicts occur again; left out there", path_, repeated_);
    if (!tree_.mesh.shape.empty()) {
      note("{}: DTensors of one rank of a mesh of {}: other ranks are in other files", path_,
           to_string(tree_.mesh.shape));
    }
    return std::move(tree_);
  }

 private:
  struct Level {
    const Pickle::Value* container;
    std::size_t next;
    std::string stem;
  };

  template <class... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    tree_.notes.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  std::string key_text(Ref ref) const {
    const Pickle::Value& key = pickle_.at(ref);
    if (key.kind == Kind::text) return std::string(key.text.substr(0, max_name_length + 1));
    if (key.kind == Kind::integer || key.kind == Kind::boolean) return std::to_string(key.integer);
    return fmt::format("<key {}>", ref);
  }

  void visit(Ref ref, std::string name) {
    const Pickle::Value& value = pickle_.at(ref);
    if (value.kind == Kind::dict || value.kind == Kind::list || value.kind == Kind::tuple) {
      if (!value.items.empty() && !seen_.insert(ref).second) {
        ++repeated_;
        return;
      }
      if (levels_.size() == max_depth || name.size() > max_name_length) {
        throw Error("{}: a dict or list is nested deeper than {} or its name is longer than {}", path_,
                    max_depth, max_name_length);
      }
      if (!name.empty()) name += '.';
      levels_.push_back({&value, 0, std::move(name)});
    } else if ((value.kind == Kind::call || value.kind == Kind::persistent || value.kind == Kind::set) &&
               may_hold_tensor(ref)) {
      text_ += name.size();
      if (text_ > max_text || tree_.records.size() + tree_.left_out.size() == max_tensors) {
        throw Error("{}: more than {} tensors, or than {} bytes of names", path_, max_tensors, max_text);
      }
      add(ref, std::move(name));
    } else if (value.kind == Kind::call) {
      ++plain_objects_;
      if (plain_names_.size() < max_listed) plain_names_.insert(pickle_.global_name(ref));
    } else {
      ++others_;
    }
  }

  bool may_hold_tensor(Ref ref) {
    if (holders_.empty()) holders_ = find_holders(pickle_);
    return holders_[ref];
  }

  void add(Ref ref, std::string name) {
    const std::string where = fmt::format("{}: tensor '{}'", path_, name);
    std::string why;
    std::optional<PickledDTensor> layout;
    std::optional<TorchView> view = parse(ref, where, layout, why);
    if (view && layout && !tree_.mesh.shape.empty() &&
        (tree_.mesh.shape != layout->mesh.shape || tree_.mesh.dims != layout->mesh.dims)) {
      why = fmt::format("a DTensor over another mesh ({}) than those before it ({})",
                        to_string(layout->mesh.shape), to_string(tree_.mesh.shape));
      view.reset();
    }
    if (!view) {
      tree_.left_out.push_back(fmt::format("{}: '{}' is {}", path_, name, why));
      return;
    }
    Record record = plain_record(std::move(name), view->dtype, view->shape, tree_.records.size());
    if (layout) {
      if (layout->global_shape.size() != view->shape.size()) {
        throw Error("{}: its part has shape {}, the whole {}", where, to_string(view->shape),
                    to_string(layout->global_shape));
      }
      record.global_shape = std::move(layout->global_shape);
      record.placements = std::move(layout->placements);
      record.mesh_coordinate = std::move(layout->coordinate);
      record.rank = layout->rank;
      tree_.mesh = std::move(layout->mesh);
    }
    tree_.records.push_back(std::move(record));
    tree_.views.push_back(std::move(*view));
  }

  /// Nothing (and why) for objects that are no tensors; Error for tensors that contradict themselves.
  std::optional<TorchView> parse(Ref ref, const std::string& where, std::optional<PickledDTensor>& layout,
                                 std::string& why) {
    if (auto array = arrays_.parse(ref, where, why); array || !why.empty()) return array;
    // Parameters, tensors with attributes and DTensors are wrapped: (function, arguments) of each layer. They
    // are few, and a file may wrap in circles.
    for (int layer = 0; layer < 4 && pickle_.at(ref).kind == Kind::call; ++layer) {
      Ref function = pickle_.at(ref).items[0];
      const std::vector<Ref>* arguments = &pickle_.arguments(ref);
      if (pickle_.is_global(function, "torch._tensor", "_rebuild_from_type_v2") && arguments->size() > 2 &&
          pickle_.at((*arguments)[2]).kind == Kind::tuple) {
        function = (*arguments)[0];
        if (pickle_.is_global(function, "torch._utils", "_rebuild_wrapper_subclass")) {
          if (layout) break;  // a DTensor of a DTensor
          layout = parse_dtensor(pickle_, *arguments, where, why);
          if (!layout) return std::nullopt;
          ref = layout->local;
          continue;
        }
        arguments = &pickle_.at((*arguments)[2]).items;
      }
      const Pickle::Value& callable = pickle_.at(function);
      if (callable.kind != Kind::global) break;
      if (callable.text != "torch._utils") {
        why = is_set(pickle_, ref)
                  ? "a set, whose items have no names"
                  : fmt::format("an object made by {}, which is not known", pickle_.global_name(function));
        return std::nullopt;
      }
      if (callable.text2 != "_rebuild_parameter" && callable.text2 != "_rebuild_parameter_with_state")
        return parse_torch_view(pickle_, callable.text2, *arguments, storages_, where, why);
      if (arguments->empty()) throw Error("{}: a parameter without a tensor", where);
      ref = (*arguments)[0];
    }
    why =
        pickle_.at(ref).kind == Kind::persistent ? "a bare storage, not a tensor" : "an object, not a tensor";
    return std::nullopt;
  }

  const Pickle& pickle_;
  const TorchStorages& storages_;
  std::string_view path_;
  PickledArrays arrays_;
  TorchTree tree_;
  std::vector<bool> holders_;
  std::vector<Level> levels_;
  std::unordered_set<Ref> seen_;
  std::set<std::string> plain_names_;
  std::size_t others_ = 0, plain_objects_ = 0, repeated_ = 0, text_ = 0;
};

class TorchDump : public Dump {
 public:
  TorchDump(std::filesystem::path file, std::unique_ptr<const TorchStorages> storages, const Pickle& pickle)
      : storages_(std::move(storages)) {
    path = std::move(file);
    format = "pt";
    TorchTree tree = read_torch_tree(pickle, *storages_, path.string());
    records = std::move(tree.records);
    views_ = std::move(tree.views);
    mesh = std::move(tree.mesh);
    notes = std::move(tree.notes);
    left_out = std::move(tree.left_out);
    for (const Record& record : records) world_size = std::max(world_size, record.rank + 1);
  }
  Tensor read(std::size_t index) const override {
    return read_torch_view(views_.at(index), *storages_, location(index));
  }
  std::string location(std::size_t index) const override {
    return fmt::format("{}: {}", path.string(), records.at(index).id.module);
  }

 private:
  std::unique_ptr<const TorchStorages> storages_;
  std::vector<TorchView> views_;
};

}  // namespace

TorchTree read_torch_tree(const Pickle& pickle, const TorchStorages& storages, std::string_view path) {
  return Walk(pickle, storages, path).run();
}

std::unique_ptr<Dump> make_torch_dump(std::filesystem::path path,
                                      std::unique_ptr<const TorchStorages> storages, const Pickle& pickle) {
  return std::make_unique<TorchDump>(std::move(path), std::move(storages), pickle);
}

}  // namespace assay
