#include "assay/dumps/torch/dtensor.h"

#include <fmt/core.h>

#include "assay/dumps/torch/view.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Kind = Pickle::Kind;
using Ref = Pickle::Ref;

bool is_dtensor(const Pickle& pickle, Ref type) {
  for (const std::string_view module : {"torch.distributed.tensor", "torch.distributed.tensor._api",
                                        "torch.distributed._tensor", "torch.distributed._tensor.api"}) {
    if (pickle.is_global(type, module, "DTensor")) return true;
  }
  return false;
}

std::optional<Ref> either(const Pickle& pickle, Ref object, std::string_view name, std::string_view other) {
  const auto found = pickle.attribute(object, name);
  return found ? found : pickle.attribute(object, other);
}

std::int64_t product(const Pickle& pickle, Ref ref, std::string_view where) {
  if (pickle.at(ref).kind == Kind::integer) return pickle.at(ref).integer;
  std::int64_t result = 1;
  for (const std::int64_t extent : pickled_integers(pickle, ref, where, "mesh")) {
    if (extent < 1 || extent > max_ranks || result > max_ranks) return 0;
    result *= extent;
  }
  return result;
}

// Up to torch 2.9 a mesh keeps its ranks as a tensor; later its layout lists the axes, those of one rank with
// an empty shape.
std::optional<Shape> mesh_shape(const Pickle& pickle, Ref mesh, std::string_view where) {
  const auto ranks = either(pickle, mesh, "mesh", "_mesh");
  if (ranks && pickle.at(*ranks).kind == Kind::call && pickle.arguments(*ranks).size() > 2)
    return pickled_integers(pickle, pickle.arguments(*ranks)[2], where, "mesh");
  const auto layout = pickle.attribute(mesh, "_layout");
  if (!layout) return std::nullopt;
  const auto axes = pickle.attribute(*layout, "axes");
  const auto shape = axes ? axes : pickle.attribute(*layout, "shape");
  if (!shape) return std::nullopt;
  const Pickle::Value& list = pickle.at(*shape);
  if (list.kind == Kind::integer) return Shape{list.integer};
  Shape result;
  for (const Ref item : list.items) {
    const auto inner = axes ? pickle.attribute(item, "shape") : std::optional(item);
    if (!inner || result.size() == 64) return std::nullopt;
    result.push_back(product(pickle, *inner, where));
  }
  return result;
}

std::optional<Placement> placement(const Pickle& pickle, Ref ref) {
  const std::string name = pickle.global_name(ref);
  for (const std::string_view module :
       {"torch.distributed.tensor.placement_types.", "torch.distributed._tensor.placement_types."}) {
    if (!name.starts_with(module)) continue;
    const std::string word = name.substr(module.size());
    if (word == "Replicate") return Placement{};
    if (word == "Shard" || word == "_StridedShard") {
      const auto dim = pickle.attribute(ref, "dim"), factor = pickle.attribute(ref, "split_factor");
      const std::int64_t value = dim ? pickle.at(*dim).integer : -1;
      Placement result{Placement::Kind::shard, static_cast<int>(value)};
      if (word == "_StridedShard") result.split_factor = factor ? pickle.at(*factor).integer : -1;
      if (value >= 0 && value < 64 && result.split_factor > 0 && result.split_factor <= max_ranks)
        return result;
    }
    if (word == "Partial" || word == "_Partial") {
      const auto operation = pickle.attribute(ref, "reduce_op");
      // Before torch 2.3 it was an enum of the process groups.
      const bool is_sum = !operation || pickle.at(*operation).text == "sum";
      if (is_sum) return Placement{Placement::Kind::partial, 0};
    }
  }
  return std::nullopt;
}

void read_mesh(const Pickle& pickle, Ref mesh, Shape shape, PickledDTensor& result, std::string_view where) {
  std::int64_t ranks = 1;
  const auto names = either(pickle, mesh, "_mesh_dim_names", "mesh_dim_names");
  for (std::size_t m = 0; m < shape.size(); ++m) {
    if (shape[m] < 1 || shape[m] > max_ranks || (ranks *= shape[m]) > max_ranks)
      throw Error("{}: a mesh of shape {}", where, to_string(shape));
    const bool is_named = names && m < pickle.at(*names).items.size();
    result.mesh.dims.push_back(is_named ? std::string(pickle.at(pickle.at(*names).items[m]).text)
                                        : fmt::format("dim{}", m));
  }
  result.mesh.shape = std::move(shape);
  const auto at = pickle.attribute(mesh, "_coordinate_on_dim");
  if (at) result.coordinate = pickled_integers(pickle, *at, where, "place in the mesh");
  bool inside = result.coordinate.size() == result.mesh.shape.size();
  for (std::size_t m = 0; inside && m < result.coordinate.size(); ++m)
    inside = result.coordinate[m] >= 0 && result.coordinate[m] < result.mesh.shape[m];
  if (!inside) {
    throw Error("{}: its place {} is not in the mesh of shape {}", where, to_string(result.coordinate),
                to_string(result.mesh.shape));
  }
  const auto rank = pickle.attribute(mesh, "_rank");
  std::int64_t number = 0;  // its place, where the rank is not recorded
  for (std::size_t m = 0; m < result.coordinate.size(); ++m)
    number = number * result.mesh.shape[m] + result.coordinate[m];
  if (rank && pickle.at(*rank).kind == Kind::integer) number = pickle.at(*rank).integer;
  if (number < 0 || number >= max_ranks) throw Error("{}: rank {}", where, number);
  result.rank = static_cast<int>(number);
}

}  // namespace

std::optional<PickledDTensor> parse_dtensor(const Pickle& pickle, const std::vector<Ref>& arguments,
                                            std::string_view where, std::string& why) {
  if (arguments.size() < 4 || pickle.at(arguments[2]).items.size() < 3)
    throw Error("{}: a wrapped tensor is not described as torch.save does", where);
  const std::vector<Ref>& outer = pickle.at(arguments[2]).items;
  if (!is_dtensor(pickle, arguments[1])) {
    why = fmt::format("a {}, which is not known", pickle.global_name(arguments[1]));
    return std::nullopt;
  }
  why = "a DTensor whose layout is not described as known versions of torch do";
  const auto local = pickle.find(arguments[3], "_local_tensor"), spec = pickle.find(arguments[3], "_spec");
  if (!local || !spec) return std::nullopt;
  const auto placements = pickle.attribute(*spec, "placements"), mesh = pickle.attribute(*spec, "mesh");
  if (!placements || !mesh) return std::nullopt;
  const auto shape = mesh_shape(pickle, *mesh, where);
  if (!shape) return std::nullopt;
  PickledDTensor result;
  result.local = *local;
  result.global_shape = pickled_integers(pickle, outer[2], where, "shape");
  for (const Ref item : pickle.at(*placements).items) {
    const auto known = placement(pickle, item);
    if (!known) {
      why = fmt::format("a DTensor placed by {}, which is not known", pickle.global_name(item));
      return std::nullopt;
    }
    result.placements.push_back(*known);
  }
  if (result.placements.size() != shape->size()) {
    throw Error("{}: {} placements on a mesh of shape {}", where, result.placements.size(),
                to_string(*shape));
  }
  std::int64_t count = 1;
  for (const std::int64_t extent : result.global_shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
      throw Error("{}: {} is no shape of a DTensor", where, to_string(result.global_shape));
  }
  read_mesh(pickle, *mesh, *shape, result, where);
  why.clear();
  return result;
}

}  // namespace assay
