#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/moe_rows.h"
#include "assay/operators/engine/operator.h"

/// Who sends what to whom in expert parallelism: what moe_dispatch and moe_combine share.
/// R ranks of N tokens each, with K choices among E experts (index [R, N, K], -1: dropped).
namespace assay {

inline constexpr auto plan_attributes = std::to_array<Attribute>(
    {{"num_experts", "null", "E"},
     {"order", "\"expert\"",
      "the rows of a rank: by expert, then source rank, as experts take them; or rank: by source rank, then "
      "expert, as all-to-all delivers them"},
     {"dropped", "-1", "the index of a choice that no expert gets"}});

inline constexpr Arg plan_index{
    .name = "index", .shape = "R,N,K", .role = Role::index, .indexes = "E", .except = "dropped"};
inline constexpr Arg plan_placement{
    .name = "placement", .shape = "E", .role = Role::index, .optional = true, .indexes = "R"};

/// Sets E and P = R N K, the rows of all ranks. Throws Error where the experts cannot be placed.
inline void bind_plan(std::string_view op, Dims& d, InputShapes inputs, const Attributes& a) {
  const Shape& index = shape_of_input(inputs, "index");
  if (!a.has("num_experts") || a.integer("num_experts") < 0) {
    throw Error("{}: attribute 'num_experts' is missing or below 0", op);
  }
  const std::int64_t E = a.integer("num_experts"), R = index[0];
  if (a.integer("dropped") >= 0) throw Error("{}: dropped is {}; expected below 0", op, a.integer("dropped"));
  if (a.text("order") != "expert" && a.text("order") != "rank") {
    throw Error("{}: order is \"{}\"; expected expert or rank", op, a.text("order"));
  }
  if (find_input(inputs, "placement") == nullptr && R > 0 && E % R != 0) {
    throw Error("{}: {} experts on {} ranks; where each has not as many, 'placement' must say which", op, E,
                R);
  }
  d.set("E", E);
  d.set("P", element_count(index));
}

struct DispatchPlan {
  std::vector<std::int64_t>
      rows;  ///< places in index, by destination rank, then as `order` says; -1 at the end
  std::vector<std::int64_t> sent;  ///< [source rank, destination rank]
};

/// @param placement  the rank of each expert; an empty View: E / R neighbours on each
inline DispatchPlan dispatch_plan(const std::vector<std::int64_t>& index, View<const std::int64_t> placement,
                                  const Dims& d, const Attributes& a) {
  const std::int64_t R = d.at("R"), E = d.at("E"), per_rank = d.at("N") * d.at("K");
  const bool by_expert = a.text("order") == "expert";
  DispatchPlan plan;
  plan.sent.assign(static_cast<std::size_t>(R * R), 0);
  const auto expert = [&](std::int64_t place) { return index[static_cast<std::size_t>(place)]; };
  const auto destination = [&](std::int64_t place) {
    return placement ? placement(expert(place)) : expert(place) / (E / R);
  };
  plan.rows = routed_rows(index, d.at("P"), [&](std::int64_t place) {
    const std::int64_t source = by_expert ? 0 : place / per_rank;
    return std::array{destination(place), source, expert(place)};
  });
  for (const std::int64_t place : plan.rows) {
    if (place >= 0) ++plan.sent[static_cast<std::size_t>(place / per_rank * R + destination(place))];
  }
  return plan;
}

/// [i, j] to [j, i]
inline std::vector<std::int64_t> transposed(const std::vector<std::int64_t>& matrix, std::int64_t R) {
  std::vector<std::int64_t> result(matrix.size());
  for (std::int64_t i = 0; i < R; ++i) {
    for (std::int64_t j = 0; j < R; ++j) {
      result[static_cast<std::size_t>(j * R + i)] = matrix[static_cast<std::size_t>(i * R + j)];
    }
  }
  return result;
}

}  // namespace assay
