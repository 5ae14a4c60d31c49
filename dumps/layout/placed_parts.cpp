#include "assay/dumps/layout/placed_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "assay/dumps/layout/addends.h"
#include "assay/dumps/layout/layout.h"
#include "assay/dumps/layout/order_of_parts.h"

namespace assay {
namespace {

std::int64_t parts_of(const Dump& dump, const Record& record) {
  std::int64_t parts = 1;
  for (const int dim : record.unplaced) parts *= dump.mesh.shape.at(static_cast<std::size_t>(dim));
  return parts;
}

// The dimension that all parts together make as long as it is in the whole.
std::optional<int> cut_dimension(const Shape& part, const Shape& whole, std::int64_t parts) {
  if (part.size() != whole.size()) return {};
  std::optional<int> found;
  for (std::size_t d = 0; d < part.size(); ++d) {
    if (part[d] == whole[d]) continue;
    if (found || part[d] * parts != whole[d]) return {};
    found = static_cast<int>(d);
  }
  return found;
}

void shard(Record& record, int dim, const Shape& whole, bool zigzag = false) {
  for (const int axis : record.unplaced) {
    Placement& placement = record.placements.at(static_cast<std::size_t>(axis));
    placement = {.kind = Placement::Kind::shard, .dim = dim, .zigzag = zigzag};
  }
  record.global_shape = whole;
  record.unplaced.clear();
}

// Whether all parts are cut as the first is, each in one piece: the size of one is that of all.
bool are_alike(const Dump& dump, const std::vector<std::size_t>& records) {
  const Record& first = dump.records[records.front()];
  if (std::ranges::any_of(first.placements,
                          [](const Placement& p) { return p.split_factor > 1 || p.zigzag; }))
    return false;
  return std::ranges::all_of(records, [&](std::size_t i) {
    const Record& r = dump.records[i];
    return r.global_shape == first.global_shape && r.placements == first.placements &&
           r.unplaced == first.unplaced && !r.flattened_range && !r.cut && !r.rows;
  });
}

// Over the axes that nobody placed: where it lies among its neighbours there.
std::vector<std::int64_t> place_of(const Record& record) {
  std::vector<std::int64_t> place;
  for (const int axis : record.unplaced)
    place.push_back(record.mesh_coordinate.at(static_cast<std::size_t>(axis)));
  return place;
}

// Parts that together are as long as the whole in one dimension, in the order of their ranks. What is known
// to be cut over other axes is cut within each part.
void place_even(Dump& dump, const std::vector<std::size_t>& records, int dim, const Shape& whole,
                bool zigzag = false) {
  const auto d = static_cast<std::size_t>(dim);
  for (const std::size_t i : records) {
    Record& r = dump.records[i];
    if (r.shape != r.global_shape && !zigzag) {
      std::int64_t index = 0;
      for (const int axis : r.unplaced)
        index = index * dump.mesh.shape.at(static_cast<std::size_t>(axis)) +
                r.mesh_coordinate.at(static_cast<std::size_t>(axis));
      Shape begin = box_of(r, dump.mesh).offsets;
      begin[d] += index * r.global_shape[d];
      r.offsets = begin;
    }
    shard(r, dim, whole, zigzag);
  }
}

// A piece of each half.
void place_by_halves(Dump& dump, const std::vector<std::size_t>& records, int dim, const Shape& whole) {
  for (const std::size_t i : records) {
    Record& r = dump.records[i];
    const auto axis = static_cast<std::size_t>(r.unplaced.front());
    shard(r, dim, whole);
    r.placements[axis].split_factor = 2;
  }
}

// Parts of different lengths, such as the tokens of each rank's experts, one behind the other in the order of
// their ranks, where together they are as long as the whole.
void place_uneven(Dump& dump, const std::vector<std::size_t>& records, const Shape& whole) {
  std::map<std::vector<std::int64_t>, Shape> shapes;
  const Record& first = dump.records[records.front()];
  for (const std::size_t i : records) {
    const Record& r = dump.records[i];
    const bool is_box = r.unplaced == first.unplaced && r.shape == r.global_shape && !r.flattened_range;
    if (!is_box || r.shape.size() != whole.size() ||
        shapes.try_emplace(place_of(r), r.shape).first->second != r.shape)
      return;
  }
  std::optional<std::size_t> cut;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (std::ranges::all_of(shapes, [&](const auto& part) { return part.second[d] == whole[d]; })) continue;
    std::int64_t length = 0;
    for (const auto& [place, shape] : shapes) length += shape[d];
    if (cut || length != whole[d]) return;
    cut = d;
  }
  if (!cut || std::ssize(shapes) != parts_of(dump, first)) return;
  std::map<std::vector<std::int64_t>, std::int64_t> begins;
  std::int64_t begin = 0;
  for (const auto& [place, shape] : shapes) {
    begins[place] = begin;
    begin += shape[*cut];
  }
  for (const std::size_t i : records) {
    Record& r = dump.records[i];
    r.offsets = Shape(whole.size(), 0);
    (*r.offsets)[*cut] = begins.at(place_of(r));
    shard(r, static_cast<int>(*cut), whole);
  }
}

// Modules around which ranks hold the same results again: what differs inside of them is reduced there.
class Reunions {
 public:
  explicit Reunions(const Dump& dump) {
    for (const Record& r : dump.records) {
      if (r.id.phase != Phase::forward || r.id.slot != "output") continue;
      const auto [at, is_new] = agree_.try_emplace({r.id.step, r.id.micro_batch, r.id.module}, true);
      at->second = at->second && r.unplaced.empty();
    }
    for (const Record& r : dump.records) {
      if (r.id.phase == Phase::backward && r.id.slot.starts_with("grad_"))
        gradients_[{r.id.step, r.id.micro_batch, r.rank}].try_emplace(r.seq, &r);
    }
  }
  // A result or an input.
  bool around(const Identity& id) const {
    for (std::size_t dot = id.module.rfind('.'); dot != std::string::npos && dot > 0;
         dot = id.module.rfind('.', dot - 1)) {
      const std::string module = id.module.substr(0, dot);
      const auto found = agree_.find({id.step, id.micro_batch, module});
      if (found != agree_.end() && found->second &&
          (id.phase == Phase::forward || is_handed_back(id, module)))
        return true;
    }
    return false;
  }

 private:
  // Whether ranks agree on the first gradient behind this one that is not of the module.
  bool is_handed_back(const Identity& id, const std::string& module) const {
    for (auto rank = gradients_.lower_bound({id.step, id.micro_batch, 0}); rank != gradients_.end(); ++rank) {
      const auto& [step, micro_batch, number] = rank->first;
      if (step != id.step || micro_batch != id.micro_batch) break;
      bool is_behind = false;
      for (const auto& [seq, r] : rank->second) {
        is_behind = is_behind || r->id == id;
        if (is_behind && !r->id.module.starts_with(module + ".") && r->id.module != module)
          return r->unplaced.empty();
      }
    }
    return false;
  }

  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, bool> agree_;
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::map<std::int64_t, const Record*>> gradients_;
};

// Once for each place.
std::vector<Tensor> parts_at(const Dump& dump, const std::vector<std::size_t>& records) {
  std::map<std::vector<std::int64_t>, std::size_t> places;
  for (const std::size_t i : records) places.try_emplace(place_of(dump.records[i]), i);
  std::vector<Tensor> parts;
  for (const auto& [place, i] : places) parts.push_back(dump.read(i));
  return parts;
}

// The input or output that a gradient is of.
Identity forward_of(Identity gradient) {
  constexpr std::string_view prefix = "grad_";
  gradient.phase = Phase::forward;
  if (gradient.slot.starts_with(prefix)) gradient.slot.erase(0, prefix.size());
  return gradient;
}

// Places the parts of one side by the wholes of the other.
class PlacedByOther {
 public:
  PlacedByOther(Dump& dump, const PartRecords& tensors, const Dump& other)
      : dump_(dump), tensors_(tensors), other_(other), reunions_(dump) {
    for (std::size_t i = 0; i < other.records.size(); ++i) {
      const Record& r = other.records[i];
      if (!r.unplaced.empty() || !tensors.contains(r.id)) continue;
      wholes_.try_emplace(r.id, r.cut.value_or(r.global_shape));
      if (r.shape == r.global_shape && r.has_bits) uncut_.try_emplace(r.id, i);
    }
  }

  void place() {
    look_at_samples();
    for (const bool is_forward : {true, false}) {
      for (const auto& [id, records] : tensors_) {
        const auto whole = wholes_.find(id);
        if (whole != wholes_.end() && (id.phase == Phase::forward) == is_forward)
          place(id, records, whole->second);
      }
    }
  }

 private:
  // Tokens and positions are the same numbers on both sides, and what a model is given is cut as its results
  // are.
  void look_at_samples() {
    for (const auto& [id, records] : tensors_) {
      const Record& first = dump_.records[records.front()];
      const auto there = uncut_.find(id);
      if (is_float(first.dtype) || !first.has_bits || first.unplaced.size() != 1 || there == uncut_.end() ||
          first.shape != first.global_shape || !are_alike(dump_, records))
        continue;
      const auto dim = cut_dimension(first.shape, wholes_.at(id), parts_of(dump_, first));
      if (!dim) continue;
      if (const auto order = order_of_parts(parts_at(dump_, records), other_.read(there->second), *dim))
        samples_.try_emplace(first.unplaced, *order);
    }
  }

  // How many tokens each rank has for something: together there are as many as on the other side, perhaps for
  // others.
  bool is_count(const Identity& id, const std::vector<std::size_t>& records) const {
    const Record& first = dump_.records[records.front()];
    if (id.phase != Phase::forward || id.slot == "param" || !first.has_bits ||
        first.shape != first.global_shape)
      return false;
    const auto sum = [](const Tensor& t) {
      const std::vector<double> all = t.values();
      return std::accumulate(all.begin(), all.end(), 0.0);
    };
    double left = sum(other_.read(uncut_.at(id)));
    for (const Tensor& part : parts_at(dump_, records)) left -= sum(part);
    return left == 0;
  }

  // Whether what else cuts the dimension does so behind the axis that nobody placed, and it has two halves.
  static bool is_cut_within(const Record& record, int dim) {
    const int axis = record.unplaced.front();
    for (int m = 0; m < axis; ++m) {
      const Placement& p = record.placements[static_cast<std::size_t>(m)];
      if (p.kind == Placement::Kind::shard && p.dim == dim) return false;
    }
    return record.global_shape[static_cast<std::size_t>(dim)] % 2 == 0;
  }

  // Gate and up in one weight, and what is made with it, of which each rank has its own columns.
  bool is_by_halves(const Identity& id, const std::vector<std::size_t>& records, int dim) const {
    const Record& first = dump_.records[records.front()];
    const auto there = uncut_.find(id);
    return is_float(first.dtype) && first.has_bits && first.unplaced.size() == 1 &&
           first.shape == first.global_shape && there != uncut_.end() &&
           are_cut_by_halves(parts_at(dump_, records), other_.read(there->second), dim);
  }

  enum class As : std::uint8_t { copies, addends, values_of_its_own };

  void place(const Identity& id, const std::vector<std::size_t>& records, const Shape& whole) {
    if (!are_alike(dump_, records)) return place_uneven(dump_, records, whole);
    const Record& first = dump_.records[records.front()];
    if (const auto dim = cut_dimension(first.global_shape, whole, parts_of(dump_, first))) {
      const auto order = samples_.find(first.unplaced);
      const bool zigzag = order != samples_.end() && order->second == PartOrder::zigzag;
      if (!zigzag && is_by_halves(id, records, *dim))
        place_by_halves(dump_, records, *dim, whole);
      else if (!zigzag || is_cut_within(first, *dim))
        place_even(dump_, records, *dim, whole, zigzag);
      return;
    }
    if (first.global_shape != whole) return;
    const As as = role_of(id, records);
    if (as == As::values_of_its_own) {
      own_values_.insert(id);
      return;
    }
    for (const std::size_t i : records) {
      Record& r = dump_.records[i];
      for (const int axis : as == As::addends ? r.unplaced : std::vector<int>())
        r.placements.at(static_cast<std::size_t>(axis)) = {.kind = Placement::Kind::partial};
      r.unplaced.clear();
    }
  }

  // Each rank's own loss is an addend; of what ranks should share, parameters and gradients, it is a
  // difference. What the module around adds up, or does without, is none: nor is the gradient of such a
  // value, nor what shows how a module makes its results, such as counts of a rank's tokens.
  As role_of(const Identity& id, const std::vector<std::size_t>& records) const {
    const Record& first = dump_.records[records.front()];
    if (first.within || own_values_.contains(forward_of(id))) return As::values_of_its_own;
    if (first.shape.empty())
      return id.phase == Phase::forward && id.slot != "param" ? As::addends : As::copies;
    const auto there = uncut_.find(id);
    if (!is_float(first.dtype) && samples_.contains(first.unplaced) && there != uncut_.end() &&
        is_count(id, records))
      return As::addends;
    if (!reunions_.around(id)) return As::copies;
    const bool is_sum = is_float(first.dtype) && first.has_bits && first.shape == first.global_shape &&
                        there != uncut_.end() &&
                        are_addends(parts_at(dump_, records), other_.read(there->second));
    return is_sum ? As::addends : As::values_of_its_own;
  }

  Dump& dump_;
  const PartRecords& tensors_;
  const Dump& other_;
  Reunions reunions_;
  std::map<Identity, Shape> wholes_;
  std::map<Identity, std::size_t> uncut_;  // a record that is all of it
  std::set<Identity> own_values_;
  std::map<std::vector<int>, PartOrder> samples_;  // by the axes over which they are cut
};

}  // namespace

void place_by_other(Dump& dump, const PartRecords& tensors, const Dump& other) {
  PlacedByOther(dump, tensors, other).place();
}

void place_alike(Dump& a, const PartRecords& of_a, Dump& b, const PartRecords& of_b) {
  if (a.mesh.dims != b.mesh.dims || a.mesh.shape != b.mesh.shape) return;
  for (const auto& [id, records] : of_a) {
    const auto there = of_b.find(id);
    if (there == of_b.end() || !are_alike(a, records) || !are_alike(b, there->second)) continue;
    const Record& first = a.records[records.front()];
    const Record& other = b.records[there->second.front()];
    if (first.unplaced.empty() || first.unplaced != other.unplaced ||
        first.global_shape != other.global_shape || first.global_shape.empty())
      continue;
    Shape whole = first.global_shape;
    whole[0] *= parts_of(a, first);
    place_even(a, records, 0, whole);
    place_even(b, there->second, 0, whole);
  }
}

}  // namespace assay
