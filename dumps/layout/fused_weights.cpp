#include "assay/dumps/layout/fused_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay {
namespace {

// What a weight of all experts has in its dimension 1, one part behind the other, as different programs call
// them: transformers' modules and ours, Mixtral's.
struct Fused {
  std::string_view whole;
  std::vector<std::string_view> parts;
};
const std::vector<Fused>& fused_weights() {
  static const std::vector<Fused> all = {{"gate_up_proj", {"gate_proj", "up_proj"}},
                                         {"gate_up_proj", {"w1", "w3"}},
                                         {"down_proj", {"down_proj"}},
                                         {"down_proj", {"w2"}}};
  return all;
}

bool is_of_parameter(const Identity& id) {
  return id.slot == "param" || id.slot == "grad" || id.slot == "state";
}

// "gate_up_proj.exp_avg" is {"gate_up_proj", ".exp_avg"}.
std::pair<std::string_view, std::string_view> split(std::string_view arg) {
  const std::size_t dot = std::min(arg.find('.'), arg.size());
  return {arg.substr(0, dot), arg.substr(dot)};
}

bool is_of_one_record(const Record& r) {
  const auto is_copy = [](const Placement& p) { return p.kind == Placement::Kind::replicate; };
  return r.has_bits && r.shape == r.global_shape && std::ranges::all_of(r.placements, is_copy) &&
         !r.flattened_range && !r.cut && !r.rows && r.unplaced.empty();
}

// A record that is a part, and of which expert; -1: of all.
struct MatrixRecord {
  std::size_t record = 0;
  std::int64_t expert = -1;
};

class Records {
 public:
  explicit Records(const Dump& dump) : dump_(dump) {
    for (std::size_t i = 0; i < dump.records.size(); ++i) {
      const Record& r = dump.records[i];
      if (!is_of_parameter(r.id)) continue;
      by_id_[r.id].push_back(i);
      note_expert(r.id.module);
    }
  }

  bool has(const Identity& id) const { return by_id_.contains(id); }
  const std::map<Identity, std::vector<std::size_t>>& all() const { return by_id_; }

  // Of a weight of all experts those of one of its matrices; empty: there are none.
  std::vector<MatrixRecord> of_matrix(const Identity& whole, std::string_view matrix) const {
    Identity id = whole;
    id.arg = std::string(matrix) + std::string(split(whole.arg).second);
    if (std::vector<MatrixRecord> one = with(id, -1); !one.empty()) return one;
    id.arg = "weight" + std::string(split(whole.arg).second);
    id.module = fmt::format("{}.*.{}", whole.module, matrix);
    if (std::vector<MatrixRecord> one = with(id, -1); !one.empty()) return one;
    std::vector<MatrixRecord> parts;
    const auto numbers = experts_.find(whole.module);
    for (const std::int64_t e : numbers == experts_.end() ? std::set<std::int64_t>() : numbers->second) {
      id.module = fmt::format("{}.{}.{}", whole.module, e, matrix);
      const std::vector<MatrixRecord> own = with(id, e);
      parts.insert(parts.end(), own.begin(), own.end());
    }
    return parts;
  }

 private:
  // "layers.0.experts.3.gate_proj" is of expert 3 of "layers.0.experts".
  void note_expert(std::string_view module) {
    const std::size_t last = module.rfind('.');
    const std::size_t before = last == std::string_view::npos ? last : module.substr(0, last).rfind('.');
    if (before == std::string_view::npos) return;
    const std::string_view number = module.substr(before + 1, last - before - 1);
    std::int64_t expert = 0;
    const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), expert);
    if (problem == std::errc() && end == number.data() + number.size() && expert >= 0)
      experts_[std::string(module.substr(0, before))].insert(expert);
  }

  std::vector<MatrixRecord> with(const Identity& id, std::int64_t expert) const {
    std::vector<MatrixRecord> parts;
    const auto found = by_id_.find(id);
    for (const std::size_t i : found == by_id_.end() ? std::vector<std::size_t>() : found->second)
      parts.push_back({i, expert});
    return parts;
  }

  const Dump& dump_;
  std::map<Identity, std::vector<std::size_t>> by_id_;
  std::map<std::string, std::set<std::int64_t>> experts_;
};

// Where the values of a record lie in a whole: [experts, rows, columns], rows from `row` on.
struct ExpertRange {
  std::size_t record = 0;
  Shape shape;
  std::int64_t expert = 0, row = 0;
};

// A dump with more tensors, put together of records that it has.
class FusedDump : public Dump {
 public:
  explicit FusedDump(std::unique_ptr<Dump> of) : of_(std::move(of)) {
    path = of_->path;
    format = of_->format;
    world_size = of_->world_size;
    mesh = of_->mesh;
    groups = of_->groups;
    producer = of_->producer;
    records = of_->records;
    notes = of_->notes;
    left_out = of_->left_out;
    unreadable = of_->unreadable;
  }

  void add(Record record, std::vector<ExpertRange> pieces) {
    records.push_back(std::move(record));
    added_.push_back(std::move(pieces));
  }

  Sketch read_sketch(std::size_t index) const override {
    return is_added(index) ? Dump::read_sketch(index) : of_->read_sketch(index);
  }
  Tensor read(std::size_t index) const override {
    if (!is_added(index)) return of_->read(index);
    const Record& whole = records[index];
    const std::size_t row_bytes = size_of(whole.dtype) * static_cast<std::size_t>(whole.shape[2]);
    std::vector<std::byte> bytes(row_bytes * static_cast<std::size_t>(whole.shape[0] * whole.shape[1]));
    for (const ExpertRange& piece : pieces(index)) {
      const Tensor part = of_->read(piece.record);
      const std::size_t block = row_bytes * static_cast<std::size_t>(piece.shape[1]);
      for (std::int64_t e = 0; e < piece.shape[0]; ++e) {
        const auto row = static_cast<std::size_t>((piece.expert + e) * whole.shape[1] + piece.row);
        std::ranges::copy(part.bytes().subspan(static_cast<std::size_t>(e) * block, block),
                          bytes.begin() + static_cast<std::ptrdiff_t>(row * row_bytes));
      }
    }
    return {whole.dtype, whole.shape, std::move(bytes)};
  }
  TensorSource source(std::size_t index) const override {
    return is_added(index) ? read(index) : of_->source(index);
  }
  std::string location(std::size_t index) const override {
    return of_->location(is_added(index) ? pieces(index).front().record : index);
  }

 private:
  bool is_added(std::size_t index) const { return index >= of_->records.size(); }
  const std::vector<ExpertRange>& pieces(std::size_t index) const {
    return added_.at(index - of_->records.size());
  }

  std::unique_ptr<Dump> of_;
  std::vector<std::vector<ExpertRange>> added_;
};

// A weight of all experts. Of one rank it is a record; of several a record for each part, as ranks have
// copies.
struct Whole {
  Identity id;
  Shape shape;
  std::vector<ExpertRange> pieces;
};

void add(FusedDump& dump, const Whole& whole) {
  Record first = dump.records[whole.pieces.front().record];
  for (const ExpertRange& piece : whole.pieces) dump.records[piece.record].within = true;
  first.id = whole.id;
  first.global_shape = whole.shape;
  if (dump.world_size == 1) {
    first.shape = whole.shape;
    first.offsets.reset();
    return dump.add(std::move(first), whole.pieces);
  }
  for (const ExpertRange& piece : whole.pieces) {
    Record part = first;
    const Record& own = dump.records[piece.record];
    part.rank = own.rank;
    part.mesh_coordinate = own.mesh_coordinate;
    part.placements = own.placements;
    part.seq = own.seq;
    part.shape = piece.shape;
    part.offsets = Shape{piece.expert, piece.row, 0};
    dump.add(std::move(part), {{piece.record, piece.shape}});
  }
}

// Nothing: the parts do not make a whole.
std::optional<Whole> whole_of(const Dump& dump, const Records& own, const Identity& id,
                              const std::vector<std::string_view>& matrices) {
  Whole whole = {id, {}, {}};
  Shape each;  // [experts, inner, in] or [experts, out, inner]
  for (const std::string_view matrix : matrices) {
    const std::vector<MatrixRecord> parts = own.of_matrix(id, matrix);
    if (parts.empty()) return {};
    std::set<std::int64_t> experts;
    Shape all;
    for (const auto& [record, expert] : parts) {
      const Record& r = dump.records[record];
      const bool is_as_before =
          whole.pieces.empty() || r.dtype == dump.records[whole.pieces.front().record].dtype;
      if (!is_as_before || !is_of_one_record(r) || r.shape.size() != (expert < 0 ? 3U : 2U)) return {};
      ExpertRange piece = {record, r.shape, std::max<std::int64_t>(expert, 0)};
      if (expert >= 0) piece.shape.insert(piece.shape.begin(), 1);
      piece.row = each.empty() ? 0 : whole.shape[1];
      if (!all.empty() && all != piece.shape) return {};
      experts.insert(piece.expert);
      all = piece.shape;
      whole.pieces.push_back(std::move(piece));
    }
    if (parts.front().expert >= 0) all[0] = std::ssize(experts);
    const bool has_all = *experts.rbegin() + 1 == std::ssize(experts);  // from the first on
    if (!has_all || all[1] > max_index_number - (each.empty() ? 0 : whole.shape[1]) ||
        (!each.empty() && all != each))
      return {};
    if (each.empty()) whole.shape = {all[0], 0, all[2]};
    whole.shape[1] += all[1];
    each = all;
  }
  return whole;
}

void fuse(std::unique_ptr<Dump>& side, const Dump& other) {
  const Records own(*side), theirs(other);
  std::vector<Whole> all;
  for (const auto& [id, records] : theirs.all()) {
    if (own.has(id)) continue;
    for (const Fused& fused : fused_weights()) {
      if (split(id.arg).first != fused.whole) continue;
      if (std::optional<Whole> whole = whole_of(*side, own, id, fused.parts)) {
        all.push_back(std::move(*whole));
        break;
      }
    }
  }
  if (all.empty()) return;
  auto fused = std::make_unique<FusedDump>(std::move(side));
  for (const Whole& whole : all) add(*fused, whole);
  fused->notes.push_back(
      fmt::format("{}: {} weights of all experts are put together of those of each; first {}",
                  fused->path.string(), all.size(), to_string(all.front().id)));
  side = std::move(fused);
}

}  // namespace

void fuse_weights(std::unique_ptr<Dump>& actual, std::unique_ptr<Dump>& reference) {
  fuse(actual, *reference);
  fuse(reference, *actual);
}

}  // namespace assay
