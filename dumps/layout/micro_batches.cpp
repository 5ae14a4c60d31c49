#include "assay/dumps/layout/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "assay/dumps/layout/addends.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Batch = std::pair<std::int64_t, std::int64_t>;  // step, micro-batch

// Where a micro-batch lies in the larger one.
struct Place {
  std::int64_t of = 0, index = 0;
};
// Parts of as many samples each. Those of `turn` neighbours alternate (of ranks, to which a sampler deals
// them out); such groups lie behind each other (in which gradients are accumulated).
struct Joined {
  std::int64_t parts = 0, turn = 1, samples = 0;
  std::map<Batch, Place> places;
};

std::map<std::int64_t, std::set<std::int64_t>> micro_batches(const Dump& dump) {
  std::map<std::int64_t, std::set<std::int64_t>> all;
  for (const Record& r : dump.records)
    if (r.id.micro_batch >= 0) all[r.id.step].insert(r.id.micro_batch);
  return all;
}

// A name of inputs, without step and micro-batch.
using Source = std::tuple<std::string, std::string, std::int64_t>;

// The whole inputs, by name and by micro-batch.
std::map<Source, std::map<Batch, std::size_t>> sources(const Dump& dump) {
  std::map<Source, std::map<Batch, std::size_t>> all;
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const Record& r = dump.records[i];
    if (r.id.phase != Phase::forward || r.id.slot != "input" || r.id.micro_batch < 0 || !r.has_bits ||
        r.shape.empty() || r.shape != r.global_shape || !r.unplaced.empty() || r.flattened_range)
      continue;
    all[{r.id.module, r.id.arg, r.id.call}].try_emplace({r.id.step, r.id.micro_batch}, i);
  }
  return all;
}

std::vector<std::string> rows_of(const Dump& dump, std::size_t record) {
  const Tensor t = dump.read(record);
  std::vector<std::string> rows;
  if (t.size() == 0) return rows;
  const auto count = static_cast<std::size_t>(t.shape()[0]);
  const std::size_t length = t.bytes().size() / count;
  if (length * count != t.bytes().size()) return rows;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = t.bytes().subspan(i * length, length);
    rows.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return rows;
}

// The micro-batches that the rows of a larger one are in, if they are in turn or one behind the other. Rows
// that are equal (positions, a mask of ones) do not say which of them it is.
class Matching {
 public:
  Matching(const Dump& small, const std::map<Batch, std::size_t>& of_small, const Dump& large,
           const std::map<Batch, std::size_t>& of_large)
      : small_(small), of_small_(of_small), large_(large), of_large_(of_large) {}

  std::optional<Joined> find() {
    for (const auto& [batch, record] : of_small_) {
      const std::vector<std::string> rows = rows_of(small_, record);
      if (rows.empty() || (joined_.samples != 0 && joined_.samples != std::ssize(rows))) return {};
      joined_.samples = std::ssize(rows);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const At at{batch, static_cast<std::int64_t>(r)};
        if (!there_.try_emplace({batch.first, rows[r]}, at).second) return {};
      }
    }
    for (const auto& [batch, record] : of_large_)
      if (!take(batch, rows_of(large_, record))) return {};
    if (joined_.parts < 2 || joined_.places.size() != of_small_.size()) return {};
    return joined_;
  }

 private:
  using At = std::pair<Batch, std::int64_t>;

  bool take(const Batch& batch, const std::vector<std::string>& rows) {
    std::vector<At> order;
    for (const std::string& row : rows) {
      const auto same = there_.find({batch.first, row});
      if (same == there_.end()) return false;
      order.push_back(same->second);
      there_.erase(same);
    }
    const std::int64_t parts = std::ssize(order) / joined_.samples;
    if (parts * joined_.samples != std::ssize(order) || (joined_.parts != 0 && joined_.parts != parts))
      return false;
    const bool is_first = joined_.parts == 0;
    joined_.parts = parts;
    for (std::int64_t turn = is_first ? 1 : joined_.turn; turn <= (is_first ? parts : joined_.turn); ++turn) {
      if (parts % turn != 0 || !is_in_order(order, turn)) continue;
      joined_.turn = turn;
      for (std::int64_t p = 0; p < parts; ++p)
        joined_.places[order[at(p, 0, turn)].first] = {batch.second, p};
      return true;
    }
    return false;
  }
  // The sample of a part in the larger micro-batch.
  std::size_t at(std::int64_t part, std::int64_t row, std::int64_t turn) const {
    return static_cast<std::size_t>((part / turn * joined_.samples + row) * turn + part % turn);
  }
  bool is_in_order(const std::vector<At>& order, std::int64_t turn) const {
    for (std::int64_t p = 0; p < joined_.parts; ++p) {
      for (std::int64_t r = 0; r < joined_.samples; ++r) {
        if (order[at(p, r, turn)] != At{order[at(p, 0, turn)].first, r}) return false;
      }
    }
    return true;
  }

  const Dump& small_;
  const std::map<Batch, std::size_t>& of_small_;
  const Dump& large_;
  const std::map<Batch, std::size_t>& of_large_;
  std::map<std::pair<std::int64_t, std::string>, At> there_;  // by step and content
  Joined joined_;
};

// Tokens, and what the first call was given.
std::vector<Source> in_question(const Dump& dump, const std::map<Source, std::map<Batch, std::size_t>>& all) {
  std::vector<Source> some;
  const auto first_record = [](const auto& source) { return source.second.begin()->second; };
  const auto first = std::ranges::min_element(all, {}, first_record);
  for (auto source = all.begin(); source != all.end(); ++source) {
    if (source == first || !is_float(dump.records[first_record(*source)].dtype))
      some.push_back(source->first);
  }
  return some;
}

std::optional<Joined> matched(const Dump& small, const Dump& large) {
  const auto of_small = sources(small), of_large = sources(large);
  const auto all_small = micro_batches(small), all_large = micro_batches(large);
  std::size_t wanted = 0, wanted_large = 0;
  for (const auto& [step, batches] : all_small) wanted += batches.size();
  for (const auto& [step, batches] : all_large) wanted_large += batches.size();
  for (const Source& source : in_question(small, of_small)) {
    const auto there = of_large.find(source);
    const auto& batches = of_small.at(source);
    if (there == of_large.end() || batches.size() != wanted || there->second.size() != wanted_large) continue;
    const Record &a = small.records[batches.begin()->second],
                 &b = large.records[there->second.begin()->second];
    const bool are_alike = a.dtype == b.dtype && a.shape.size() == b.shape.size() &&
                           std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
    if (!are_alike) continue;
    if (auto found = Matching(small, batches, large, there->second).find()) return found;
  }
  return {};
}

class Join {
 public:
  Join(Dump& small, const Dump& large, const Joined& joined) : small_(small), large_(large), joined_(joined) {
    for (std::size_t i = 0; i < large.records.size(); ++i) {
      const Record& r = large.records[i];
      if (r.id.micro_batch < 0 || !r.unplaced.empty()) continue;
      wholes_.try_emplace(r.id, r.cut.value_or(r.global_shape));
      if (r.shape == r.global_shape && r.has_bits) uncut_.try_emplace(r.id, i);
    }
  }

  void run() {
    const std::size_t dims = small_.mesh.dims.size();
    const Shape extents = {joined_.parts / joined_.turn, joined_.turn};
    small_.mesh.dims.insert(small_.mesh.dims.begin(), own_dims, std::string(micro_batch_dim));
    small_.mesh.shape.insert(small_.mesh.shape.begin(), extents.begin(), extents.end());
    std::map<Identity, std::vector<std::size_t>> parts;
    for (std::size_t i = 0; i < small_.records.size(); ++i) {
      Record& r = small_.records[i];
      r.placements.resize(std::max(r.placements.size(), dims));
      r.placements.insert(r.placements.begin(), own_dims, Placement{});
      r.mesh_coordinate.resize(std::max(r.mesh_coordinate.size(), dims));
      r.mesh_coordinate.insert(r.mesh_coordinate.begin(), own_dims, 0);
      for (int& dim : r.unplaced) dim += own_dims;
      const auto place = joined_.places.find({r.id.step, r.id.micro_batch});
      if (place == joined_.places.end()) continue;
      r.id.micro_batch = place->second.of;
      r.mesh_coordinate[0] = place->second.index / joined_.turn;
      r.mesh_coordinate[1] = place->second.index % joined_.turn;
      parts[r.id].push_back(i);
    }
    for (const auto& [id, records] : parts) {
      if (place(id, records)) continue;
      for (const std::size_t i : records)
        small_.records[i].unplaced.insert(small_.records[i].unplaced.begin(), {0, 1});
    }
  }

 private:
  static constexpr int own_dims = 2;  // groups behind each other, and what alternates in each

  std::int64_t index_of(const Record& r) const {
    return r.mesh_coordinate[0] * joined_.turn + r.mesh_coordinate[1];
  }

  // The parts of one micro-batch are alike.
  bool place(const Identity& id, const std::vector<std::size_t>& records) {
    std::map<std::int64_t, Shape> shapes;
    for (const std::size_t i : records) {
      const Record& r = small_.records[i];
      const bool is_plain = r.unplaced.empty() && !r.flattened_range && !r.cut && !r.rows;
      if (!is_plain || shapes.try_emplace(index_of(r), r.global_shape).first->second != r.global_shape)
        return false;
    }
    const bool is_even =
        std::ranges::all_of(shapes, [&](const auto& part) { return part.second == shapes.begin()->second; });
    if (!is_even) return place_uneven(id, records, shapes);
    if (std::ssize(shapes) != joined_.parts) return false;
    const Shape& part = shapes.begin()->second;
    const auto whole = wholes_.find(id);
    const std::optional<std::size_t> dim =
        cut_dimension(part, whole == wholes_.end() ? nullptr : &whole->second);
    if (!dim) return whole != wholes_.end() && whole->second == part && place_as_large(id, records);
    // A row for each sample, or several: the tokens of one lie together.
    if (joined_.turn > 1 && part[*dim] % joined_.samples != 0) return false;
    const auto has_box = [&](std::size_t i) { return small_.records[i].offsets.has_value(); };
    if (joined_.turn > 1 && std::ranges::any_of(records, has_box)) return false;
    for (const std::size_t i : records) {
      Record& r = small_.records[i];
      if (r.offsets) (*r.offsets)[*dim] += index_of(r) * part[*dim];
      r.global_shape[*dim] *= joined_.parts;
      const int cut = static_cast<int>(*dim);
      r.placements[0] = {.kind = Placement::Kind::shard, .dim = cut};
      r.placements[1] = {.kind = Placement::Kind::shard, .dim = cut, .split_factor = joined_.samples};
    }
    return true;
  }

  std::optional<std::size_t> cut_dimension(const Shape& part, const Shape* whole) const {
    if (whole == nullptr)
      return !part.empty() && part[0] > 0 && part[0] % joined_.samples == 0 ? std::optional<std::size_t>(0)
                                                                            : std::nullopt;
    if (part.size() != whole->size()) return {};
    std::optional<std::size_t> found;
    for (std::size_t d = 0; d < part.size(); ++d) {
      if (part[d] == (*whole)[d]) continue;
      if (found || part[d] * joined_.parts != (*whole)[d]) return {};
      found = d;
    }
    return found;
  }

  // The same in each (a table of positions, a number that is given), or a sum (a loss, counts of tokens). A
  // number of the forward pass that differs is a loss: one has no direction that shows whether the other side
  // averages.
  bool place_as_large(const Identity& id, const std::vector<std::size_t>& records) {
    const auto there = uncut_.find(id);
    std::vector<Tensor> parts;
    std::set<std::int64_t> seen;
    for (const std::size_t i : records) {
      const Record& r = small_.records[i];
      if (!r.has_bits || r.shape != r.global_shape) return false;
      if (seen.insert(index_of(r)).second) parts.push_back(small_.read(i));
    }
    const auto is_first = [&](const Tensor& t) { return std::ranges::equal(t.bytes(), parts[0].bytes()); };
    if (id.slot != "loss" && std::ranges::all_of(parts, is_first)) return true;
    const bool is_loss = parts[0].shape().empty() && is_float(parts[0].dtype()) &&
                         id.phase == Phase::forward && id.slot != "param";
    if (!is_loss && (there == uncut_.end() || !are_addends(parts, large_.read(there->second)))) return false;
    for (const std::size_t i : records)
      for (const std::size_t own : {std::size_t{0}, std::size_t{1}})
        small_.records[i].placements[own] = {.kind = Placement::Kind::partial};
    return true;
  }

  // The rows of an expert: one behind the other, if each row is nearer to its place than zeros are.
  bool place_uneven(const Identity& id, const std::vector<std::size_t>& records,
                    const std::map<std::int64_t, Shape>& shapes) {
    const auto whole = wholes_.find(id);
    const auto there = uncut_.find(id);
    if (joined_.turn > 1 || whole == wholes_.end() || there == uncut_.end()) return false;
    std::map<std::int64_t, std::int64_t> begins;
    std::int64_t length = 0;
    for (const auto& [place, shape] : shapes) {
      if (shape.empty() || shape.size() != whole->second.size() ||
          !std::equal(shape.begin() + 1, shape.end(), whole->second.begin() + 1))
        return false;
      begins[place] = length;
      length += shape[0];
    }
    if (length != whole->second[0]) return false;
    const std::vector<double> wanted = large_.read(there->second).values();
    const std::size_t width = wanted.size() / static_cast<std::size_t>(std::max<std::int64_t>(length, 1));
    for (const std::size_t i : records) {
      const Record& r = small_.records[i];
      if (!r.has_bits || r.shape != r.global_shape || r.offsets) return false;
      const std::vector<double> values = small_.read(i).values();
      const std::size_t begin = static_cast<std::size_t>(begins.at(index_of(r))) * width;
      for (std::size_t row = 0; row < values.size(); row += width) {
        double apart = 0, size = 0;
        for (std::size_t j = row; j < row + width; ++j) {
          apart += std::abs(values[j] - wanted[begin + j]);
          size += std::abs(wanted[begin + j]);
        }
        if (apart > size) return false;
      }
    }
    for (const std::size_t i : records) {
      Record& r = small_.records[i];
      r.offsets = Shape(r.shape.size(), 0);
      r.offsets->front() = begins.at(index_of(r));
      r.placements[0] = {.kind = Placement::Kind::shard, .dim = 0};
      r.global_shape = whole->second;
    }
    return true;
  }

  Dump& small_;
  const Dump& large_;
  const Joined& joined_;
  std::map<Identity, Shape> wholes_;
  std::map<Identity, std::size_t> uncut_;  // a record that is all of it
};

}  // namespace

void join_micro_batches(Dump& actual, Dump& reference) {
  const auto of_actual = micro_batches(actual), of_reference = micro_batches(reference);
  if (of_actual.empty() || of_reference.empty()) return;
  const std::size_t a = of_actual.begin()->second.size(), r = of_reference.begin()->second.size();
  if (a == r) return;
  Dump &small = a > r ? actual : reference, &large = a > r ? reference : actual;
  std::optional<Joined> joined;
  try {
    joined = matched(small, large);
  } catch (const Error&) {  // an input that cannot be read: the comparison says so
    return;
  }
  if (!joined) return;
  Join(small, large, *joined).run();
  small.notes.push_back(fmt::format(
      "{}: {} micro-batches of {} samples each are compared with one of {} of the other side, which {}",
      small.path.string(), joined->parts, joined->samples, joined->parts * joined->samples,
      joined->turn > 1 ? "has their samples in turn" : "has them one behind the other"));
}

}  // namespace assay
