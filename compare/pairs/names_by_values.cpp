#include "assay/compare/pairs/names_by_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "assay/compare/pairs/meeting.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// So many of a name are looked at, from the first to the last.
constexpr std::size_t most_samples = 6;
// A few numbers are near to many.
constexpr std::int64_t fewest_elements = 16;

// Relative to how the reference varies: roundings of bfloat16 (2^-9) add up to less over the layers of a
// model, and what a layer adds to its input is more.
constexpr double nearest = 1.0 / 16;

// What a name has in common over layers: "model.layers.#.mlp output 0".
struct Name {
  Phase phase = Phase::none;
  std::string slot, module, arg;
  std::int64_t call = 0;
  auto operator<=>(const Name&) const = default;
};
// And what it has not.
struct Place {
  std::vector<std::string> numbers;
  std::int64_t step = 0, micro_batch = -1;
  auto operator<=>(const Place&) const = default;
};

std::pair<Name, Place> split(const Identity& id) {
  Name name = {id.phase, id.slot, "", id.arg, id.call};
  Place place = {{}, id.step, id.micro_batch};
  for (std::size_t i = 0; i < id.module.size();) {
    std::size_t end = i;
    while (end < id.module.size() && std::isdigit(static_cast<unsigned char>(id.module[end])) != 0) ++end;
    if (end == i) {
      name.module += id.module[i++];
    } else {
      name.module += '#';
      place.numbers.push_back(id.module.substr(i, end - i));
      i = end;
    }
  }
  return {std::move(name), std::move(place)};
}

// The innermost numbered module around both, or the first part of the name: a layer's tensors meet within it.
std::string_view layer_of(std::string_view module) {
  const std::size_t number = module.rfind('#');
  return module.substr(0, number == std::string_view::npos ? module.find('.') : number);
}

// But what functions between modules are given and make: they have no names that another program has.
bool is_result(const LogicalTensor& t) {
  return t.id.micro_batch >= 0 && !t.id.module.ends_with("()") && element_count(t.shape) >= fewest_elements &&
         (t.id.phase == Phase::forward || t.id.phase == Phase::backward);
}

// What two names have to have in common: the phase, the layer, the number of elements and whether these are
// floating-point numbers.
using Kind = std::tuple<Phase, std::string, std::int64_t, bool>;

Kind kind_of(const Name& name, const LogicalTensor& t) {
  return {name.phase, std::string(layer_of(name.module)), element_count(t.shape), is_float(t.dtype)};
}

// More names of one kind have nothing in common but the kind.
constexpr std::size_t most_candidates = 64;

// How often a module was called in a micro-batch. Where the sides count otherwise, an equal number is no
// equal call: a program records a layer, a replay the sums in it.
class Calls {
 public:
  explicit Calls(const std::vector<LogicalTensor>& tensors) {
    for (const LogicalTensor& t : tensors) {
      std::int64_t& last = last_[module_of(t.id)];
      last = std::max(last, t.id.call);
    }
  }
  bool are_as_many(const Calls& other, const Identity& id) const {
    const auto own = last_.find(module_of(id)), there = other.last_.find(module_of(id));
    return own != last_.end() && there != other.last_.end() && own->second == there->second;
  }

 private:
  using Module = std::tuple<std::int64_t, std::int64_t, Phase, std::string>;
  static Module module_of(const Identity& id) { return {id.step, id.micro_batch, id.phase, id.module}; }
  std::map<Module, std::int64_t> last_;
};

// The tensors of a name; those of the actual side are renamed.
template <class T>
using Places = std::map<Place, T*>;
using Named = std::map<Name, Places<const LogicalTensor>>;

// So many elements of a tensor are looked at, from the first to the last.
constexpr std::int64_t most_elements = 4096;

class ValuesOfSide {
 public:
  explicit ValuesOfSide(const Dump& dump) : dump_(dump) {}

  // Empty: it cannot be read.
  const std::vector<double>& values(const LogicalTensor& t) {
    const auto [known, is_new] = known_.try_emplace(&t);
    if (!is_new || without_bits(dump_, t) != nullptr) return known->second;
    try {
      const Tensor whole = merge(dump_, t).tensor.whole();
      const std::int64_t count = std::min(whole.size(), most_elements);
      for (std::int64_t i = 0; i < count; ++i)
        known->second.push_back(whole.value(i * (whole.size() / count)));
    } catch (const Error&) {  // the comparison says so
      known->second.clear();
    }
    return known->second;
  }

 private:
  const Dump& dump_;
  std::map<const LogicalTensor*, std::vector<double>> known_;
};

// The square of the distance, relative to how b varies around its mean: probabilities are all near to each
// other. Of integers the part that differs.
std::optional<double> distance(const std::vector<double>& a, const std::vector<double>& b, bool are_floats) {
  if (a.empty() || a.size() != b.size()) return {};
  const double mean = std::accumulate(b.begin(), b.end(), 0.0) / static_cast<double>(b.size());
  double off = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += are_floats ? (a[i] - b[i]) * (a[i] - b[i]) : a[i] != b[i] ? 1 : 0;
    size += are_floats ? (b[i] - mean) * (b[i] - mean) : 1;
  }
  if (off == 0) return 0;
  const double relative = off / size;
  return std::isfinite(relative) ? std::optional(relative) : std::nullopt;
}

class ValuesOfNames {
 public:
  ValuesOfNames(const Dump& actual, const Dump& reference) : actual_(actual), reference_(reference) {}

  // How far the tensors of a name are from those of another; nothing: it is another name.
  std::optional<double> compare(const Places<LogicalTensor>& own, const Places<const LogicalTensor>& others) {
    std::vector<std::pair<const LogicalTensor*, const LogicalTensor*>> pairs;
    for (const auto& [place, t] : own) {
      const auto there = others.find(place);
      if (there == others.end()) continue;
      if (common_shape(t->shape, there->second->shape) != there->second->shape ||
          is_float(t->dtype) != is_float(there->second->dtype))
        return {};
      pairs.emplace_back(t, there->second);
    }
    const std::size_t samples = std::min(pairs.size(), most_samples);
    std::vector<double> near;
    for (std::size_t i = 0; i < samples; ++i) {
      const auto& [a, b] = pairs[samples == 1 ? 0 : i * (pairs.size() - 1) / (samples - 1)];
      const auto d = distance(actual_.values(*a), reference_.values(*b), is_float(a->dtype));
      if (d && *d < (is_float(a->dtype) ? nearest * nearest : 0.5)) near.push_back(*d);
    }
    if (2 * near.size() <= samples) return {};
    std::ranges::sort(near);
    return near[near.size() / 2];
  }

 private:
  ValuesOfSide actual_, reference_;
};

}  // namespace

std::vector<std::string> meet_by_values(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                                        const Dump& reference,
                                        const std::vector<LogicalTensor>& reference_tensors) {
  std::map<Identity, const LogicalTensor*> own_ids, their_ids;
  for (const LogicalTensor& t : actual_tensors) own_ids.emplace(t.id, &t);
  for (const LogicalTensor& t : reference_tensors) their_ids.emplace(t.id, &t);
  const Calls own_calls(actual_tensors), their_calls(reference_tensors);
  const auto has_met = [&](const Identity& id) {
    const auto a = own_ids.find(id), r = their_ids.find(id);
    return a != own_ids.end() && r != their_ids.end() && own_calls.are_as_many(their_calls, id) &&
           common_shape(a->second->shape, r->second->shape) == r->second->shape;
  };
  std::vector<Name> order;  // of execution
  std::map<Name, Places<LogicalTensor>> own;
  Named others;
  for (LogicalTensor& t : actual_tensors) {
    if (has_met(t.id) || !is_result(t)) continue;
    auto [name, place] = split(t.id);
    if (!own.contains(name)) order.push_back(name);
    own[std::move(name)].try_emplace(std::move(place), &t);
  }
  for (const LogicalTensor& t : reference_tensors) {
    if (has_met(t.id) || !is_result(t)) continue;
    auto [name, place] = split(t.id);
    others[std::move(name)].try_emplace(std::move(place), &t);
  }
  std::map<Kind, std::vector<Named::iterator>> of_kind;
  for (auto other = others.begin(); other != others.end(); ++other)
    of_kind[kind_of(other->first, *other->second.begin()->second)].push_back(other);
  std::vector<std::string> notes;
  ValuesOfNames meeting(actual, reference);
  // The nearest first; of equally near ones that which is a result, too, and the first.
  struct Match {
    double distance;
    bool has_other_slot;
    std::size_t own;  // in the order
    std::int64_t seq;
    Named::iterator other;
    auto key() const { return std::tuple(distance, has_other_slot, own, seq); }
  };
  std::vector<Match> matches;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto& tensors = own.at(order[k]);
    const auto candidates = of_kind.find(kind_of(order[k], *tensors.begin()->second));
    if (candidates == of_kind.end() || candidates->second.size() > most_candidates) continue;
    for (const Named::iterator other : candidates->second) {
      if (const auto d = meeting.compare(tensors, other->second))
        matches.push_back(
            {*d, other->first.slot != order[k].slot, k, other->second.begin()->second->seq, other});
    }
  }
  std::ranges::sort(matches, {}, &Match::key);
  std::vector<bool> has_name(order.size());
  std::set<Name> taken;
  for (const Match& match : matches) {
    if (has_name[match.own] || !taken.insert(match.other->first).second) continue;
    has_name[match.own] = true;
    if (match.other->first == order[match.own]) continue;
    std::int64_t count = 0;
    std::string example;
    for (const auto& [place, t] : own.at(order[match.own])) {
      const auto there = match.other->second.find(place);
      if (there == match.other->second.end() || own_ids.contains(there->second->id)) continue;
      if (count++ == 0) example = fmt::format("'{}' is '{}'", to_string(t->id), to_string(there->second->id));
      t->id = there->second->id;
    }
    if (count > 0)
      notes.push_back(fmt::format("{} tensors are compared with the reference's that have their values: {}",
                                  grouped(count), example));
  }
  return notes;
}

}  // namespace assay
