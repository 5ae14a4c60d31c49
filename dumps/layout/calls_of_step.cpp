#include "assay/dumps/layout/calls_of_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "assay/dumps/layout/addends.h"
#include "assay/dumps/layout/micro_batches.h"

namespace assay {
namespace {

using Call = std::pair<std::int64_t, std::int64_t>;   // micro-batch, call
using Module = std::pair<std::int64_t, std::string>;  // step, path

bool is_activation(const Record& r) {
  return r.id.slot == "input" || r.id.slot == "output" || r.id.slot.starts_with("grad_");
}

bool is_weight(const Record& r) {
  return (r.id.slot == "param" && r.id.phase == Phase::forward) || r.id.slot == "grad";
}

Call call_of(const Record& r) {
  return {r.id.micro_batch, r.id.call};
}

bool is_of_call(const Record& r) {
  return call_of(r) != Call{-1, 0};
}

bool has(const Dump& dump, bool (*kind)(const Record&), bool (*what)(const Record&)) {
  return std::ranges::any_of(dump.records, [&](const Record& r) { return kind(r) && what(r); });
}

bool is_in_micro_batch(const Record& r) {
  return r.id.micro_batch >= 0;
}

bool is_in_none(const Record& r) {
  return r.id.micro_batch < 0;
}

// The calls of each module, by its forward pass where that was recorded.
std::map<Module, std::vector<Call>> calls_by_module(const Dump& dump) {
  std::map<Module, std::set<Call>> forward, any;
  for (const Record& r : dump.records) {
    if (!is_activation(r)) continue;
    const Module module{r.id.step, r.id.module};
    any[module].insert(call_of(r));
    if (r.id.phase == Phase::forward) forward[module].insert(call_of(r));
  }
  std::map<Module, std::vector<Call>> all;
  for (const auto& [module, found] : any) {
    const auto first = forward.find(module);
    const std::set<Call>& own = first == forward.end() ? found : first->second;
    all[module].assign(own.begin(), own.end());
  }
  return all;
}

std::map<std::int64_t, std::int64_t> count_micro_batches(const Dump& dump) {
  std::map<std::int64_t, std::set<std::int64_t>> found;
  for (const Record& r : dump.records) {
    if (is_activation(r)) found[r.id.step].insert(r.id.micro_batch);
  }
  std::map<std::int64_t, std::int64_t> counts;
  for (const auto& [step, numbers] : found) counts[step] = std::ssize(numbers);
  return counts;
}

// Returns how many records got a micro-batch.
std::int64_t number_activations(Dump& dump, const Dump& other) {
  const auto own = calls_by_module(dump), there = calls_by_module(other);
  const auto counts = count_micro_batches(other);
  std::int64_t numbered = 0;
  for (Record& r : dump.records) {
    const Module module{r.id.step, r.id.module};
    const auto found = own.find(module);
    const auto count = counts.find(r.id.step);
    if (!is_activation(r) || found == own.end() || count == counts.end()) continue;
    const auto at = std::ranges::lower_bound(found->second, call_of(r));
    if (at == found->second.end() || *at != call_of(r)) continue;
    const std::int64_t place = at - found->second.begin(), all = std::ssize(found->second);
    const auto same = there.find(module);
    if (same != there.end() && std::ssize(same->second) == all) {
      std::tie(r.id.micro_batch, r.id.call) = same->second[static_cast<std::size_t>(place)];
    } else if (all % count->second == 0) {
      const std::int64_t in_each = all / count->second;
      r.id.micro_batch = place / in_each;
      r.id.call = place % in_each;
    } else {
      continue;
    }
    ++numbered;
  }
  return numbered;
}

// Of one rank, with the calls that recorded it.
using Weights = std::map<std::pair<int, Identity>, std::vector<std::pair<Call, std::size_t>>>;

Weights weights_of(const Dump& dump) {
  Weights weights;
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const Record& r = dump.records[i];
    if (!is_weight(r)) continue;
    Identity id = r.id;
    std::tie(id.micro_batch, id.call) = Call{-1, 0};
    weights[{r.rank, id}].emplace_back(call_of(r), i);
  }
  for (auto& [weight, records] : weights) std::ranges::sort(records);
  return weights;
}

// Recorders take a gradient where it is added to the weight's, or what that is behind it: msprobe did the one
// and does the other. The other side's whole gradients say which; a few of the smallest do.
bool are_added_up(const Dump& dump, const Weights& weights, const Dump& other) {
  constexpr std::size_t enough = 9;
  std::map<Identity, std::size_t> wholes;
  for (std::size_t i = 0; i < other.records.size(); ++i) {
    const Record& r = other.records[i];
    if (is_weight(r) && r.id.slot == "grad" && r.has_bits && r.shape == r.global_shape && r.unplaced.empty())
      wholes.emplace(r.id, i);
  }
  std::vector<std::tuple<std::int64_t, std::size_t, const Weights::value_type*>> some;
  for (const auto& weight : weights) {
    const auto whole = wholes.find(weight.first.second);
    const auto has_values = [&](const auto& call) {
      const Record& r = dump.records[call.second];
      return r.has_bits && r.shape == other.records[whole->second].shape;
    };
    if (weight.second.size() > 1 && whole != wholes.end() && std::ranges::all_of(weight.second, has_values))
      some.emplace_back(element_count(other.records[whole->second].shape), whole->second, &weight);
  }
  std::ranges::sort(some, {}, [](const auto& one) { return std::pair(std::get<0>(one), std::get<1>(one)); });
  some.resize(std::min(some.size(), enough));
  std::size_t votes = 0;
  for (const auto& [size, whole, weight] : some) {
    std::vector<Tensor> parts;  // the last one first
    for (auto call = weight->second.rbegin(); call != weight->second.rend(); ++call)
      parts.push_back(dump.read(call->second));
    votes += are_addends(parts, other.read(whole)) ? 1 : 0;
  }
  return votes * 2 > some.size();
}

// A dimension of the mesh for each number of calls: a sum needs an addend of every coordinate.
std::map<std::size_t, std::size_t> add_dims(Dump& dump, const Weights& weights) {
  std::map<std::size_t, std::size_t> dims;  // by the number of calls
  for (const auto& [weight, records] : weights) {
    if (records.size() > 1) dims.try_emplace(records.size(), 0);
  }
  const std::size_t before = dump.mesh.dims.size();
  for (auto& [count, dim] : dims) {
    dim = dump.mesh.dims.size();
    dump.mesh.dims.emplace_back(micro_batch_dim);
    dump.mesh.shape.push_back(static_cast<std::int64_t>(count));
  }
  if (dims.empty()) return dims;
  for (Record& r : dump.records) {
    r.placements.resize(std::max(r.placements.size(), before) + dims.size());
    r.mesh_coordinate.resize(std::max(r.mesh_coordinate.size(), before) + dims.size());
  }
  return dims;
}

void join_weights(Dump& dump, const Dump& other) {
  const Weights weights = weights_of(dump);
  const bool adds = are_added_up(dump, weights, other);
  const auto dims = add_dims(dump, weights);
  for (const auto& [weight, records] : weights) {
    for (std::size_t k = 0; k < records.size(); ++k) {
      Record& r = dump.records[records[k].second];
      r.id = weight.second;
      if (records.size() == 1) continue;
      if (r.id.slot == "grad" && !adds) {
        if (k + 1 == records.size()) continue;
        r.id.call = static_cast<std::int64_t>(k) + 1;
        r.within = true;  // how the last one came about
        continue;
      }
      const std::size_t dim = dims.at(records.size());
      r.mesh_coordinate[dim] = static_cast<std::int64_t>(k);
      if (r.id.slot == "grad") r.placements[dim] = {.kind = Placement::Kind::partial};
    }
  }
}

}  // namespace

void number_calls_of_step(Dump& actual, Dump& reference) {
  for (const auto& [own, other] : {std::pair(&actual, &reference), std::pair(&reference, &actual)}) {
    const bool counts_over_step =
        has(*own, is_activation, is_in_none) && !has(*own, is_activation, is_in_micro_batch) &&
        has(*other, is_activation, is_in_micro_batch) && !has(*other, is_activation, is_in_none);
    if (counts_over_step && number_activations(*own, *other) > 0)
      own->notes.push_back(
          fmt::format("{}: calls are counted over the step: they are taken as those of its micro-batches",
                      own->path.string()));
    if (has(*own, is_weight, is_of_call) && has(*other, is_weight, [](const Record&) { return true; }) &&
        !has(*other, is_weight, is_of_call))
      join_weights(*own, *other);
  }
}

}  // namespace assay
