// Dynamic expert placement. Each rank of ep has as many slots as without it, but which expert is in a slot
// changes after each step by the tokens that the experts of the layer got in it (packing.h, the balanced
// packing of DeepSeek's EPLB). Parameters and
// optimizer states move to the new slots: all-to-all over ep, nothing is summed or scaled. A router's choice
// is translated from experts to slots before the tokens are dispatched; the rows of an expert stay in their
// order, so that it computes what it did elsewhere. Routers, balance losses and dumps know experts, not
// slots.
#include "assay/align/strategies/expert_placement.h"

#include <fmt/format.h>

#include <numeric>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/strategies/packing.h"

namespace assay::align {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

Slots home_slots(std::int64_t experts) {
  Slots slots(at(experts));
  std::iota(slots.begin(), slots.end(), std::int64_t{0});
  return slots;
}

Slots slots_by_load(std::span<const std::int64_t> tokens, std::int64_t ranks) {
  Slots slots;
  for (const std::vector<std::size_t>& experts : packed(tokens, at(ranks)))
    slots.insert(slots.end(), experts.begin(), experts.end());
  return slots;
}

std::vector<std::int64_t> slots_of_experts(const Slots& slots) {
  return inverse(slots);
}

Tensor move_experts(const Ranks& ranks, const std::string& name, const Tensor& part, const Slots& from,
                    const Slots& to) {
  if (from == to) return part;
  const Mesh& mesh = ranks.mesh();
  const auto n = static_cast<std::size_t>(mesh.size(Axis::ep)), me = at(mesh.coordinate(Axis::ep));
  const std::size_t own = to.size() / n;
  const std::vector<std::int64_t> was_in = slots_of_experts(from);
  const auto row = [](const Tensor& t, std::size_t k) {
    const auto first = static_cast<std::int64_t>(k);
    return piece(t, 0, first, first + 1);
  };
  const auto together = [&](const std::vector<Tensor>& rows) {
    return rows.empty() ? piece(part, 0, 0, 0) : joined(rows, 0);
  };
  // To each rank what it is to have, in the order of its slots.
  std::vector<std::vector<Tensor>> give(n);
  for (std::size_t s = 0; s < to.size(); ++s) {
    const std::size_t old = at(was_in[at(to[s])]);
    if (old / own == me) give[s / own].push_back(row(part, old % own));
  }
  std::vector<Tensor> letters;
  for (const std::vector<Tensor>& rows : give) letters.push_back(together(rows));
  const std::vector<Tensor> taken = ranks.communicator().all_to_all(
      mesh.group({Axis::ep}), fmt::format("the experts of {}", name), letters);
  std::vector<std::size_t> next(n);
  std::vector<Tensor> rows;
  for (std::size_t s = me * own; s < (me + 1) * own; ++s) {
    const std::size_t giver = at(was_in[at(to[s])]) / own;
    rows.push_back(row(taken[giver], next[giver]++));
  }
  return together(rows);
}

}  // namespace assay::align
