#include "assay/dumps/layout/layout_cut.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "assay/dumps/layout/layout.h"
#include "assay/dumps/record/glob.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

using Token = LayoutRules::Token;
using How = Token::How;

/// The records of one tensor under one rule.
class Cut {
 public:
  Cut(Dump& dump, const LayoutRules::Layout& rule, std::vector<std::size_t> records)
      : dump_(dump), rule_(rule), records_(std::move(records)) {
    for (const Token& token : rule.dims) {
      if (!token.name.empty()) dims_.push_back(&token);
      for (const Token::Axis& axis : token.axes) {
        is_zigzag_ = is_zigzag_ || axis.how == How::zigzag;
        if (axis.how == How::partial) partial_.push_back(axis_of(axis.axis));
      }
    }
    for (const std::size_t index : records_) {
      const Record& r = dump.records[index];
      const std::size_t expected = rule.flat.empty() ? dims_.size() : 1;
      if (r.shape.size() == expected && r.mesh_coordinate.size() == dump.mesh.dims.size()) continue;
      throw Error("{}: {}: rank {} holds shape {}; expected {}", rule.source, to_string(r.id), r.rank,
                  to_string(r.shape),
                  rule.flat.empty() ? fmt::format("{} dimensions, as the rule names", dims_.size())
                                    : "a flat tensor");
    }
  }

  void run() {
    for (const std::size_t index : records_) place(dump_.records[index]);
    if (!rule_.flat.empty())
      flatten();
    else if (is_zigzag_)
      by_placements();
    else
      by_offsets();
    for (const std::size_t index : records_) trim(dump_.records[index]);
  }

 private:
  std::size_t axis_of(const std::string& axis) const {
    const auto found = std::ranges::find(dump_.mesh.dims, axis);
    if (found == dump_.mesh.dims.end())
      throw Error("{}: the mesh has no axis '{}'; expected one of {}", rule_.source, axis,
                  fmt::join(dump_.mesh.dims, ", "));
    return static_cast<std::size_t>(found - dump_.mesh.dims.begin());
  }
  Record& record(std::size_t index) const { return dump_.records[index]; }

  // The placements, one per mesh dimension.
  void place(Record& r) const {
    r.placements.assign(dump_.mesh.dims.size(), {});
    for (const std::size_t axis : partial_) r.placements[axis].kind = Placement::Kind::partial;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      for (const Token::Axis& axis : dims_[d]->axes)
        r.placements[axis_of(axis.axis)] = {Placement::Kind::shard, static_cast<int>(d), 1,
                                            axis.how == How::zigzag};
    }
  }

  // Equal shares, cut in the order of the mesh.
  void by_placements() const {
    Shape global = record(records_.front()).shape;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      std::size_t before = 0;
      for (const Token::Axis& axis : dims_[d]->axes) {
        const std::size_t m = axis_of(axis.axis);
        if (m < before)
          throw Error(
              "{}: '{}' is cut by {} after an axis that the mesh has later; expected the order of the mesh",
              rule_.source, dims_[d]->name, axis.axis);
        before = m;
        if (__builtin_mul_overflow(global[d], dump_.mesh.shape[m], &global[d]))
          throw Error("{}: {} would have more than 2^63 elements", rule_.source,
                      to_string(record(records_.front()).id));
      }
    }
    for (const std::size_t index : records_) record(index).global_shape = global;
  }

  // Where along dimension d every share lies: after those of the coordinates before it.
  using Starts = std::map<Shape, std::int64_t>;
  Shape coordinates(const Record& r, const std::vector<Token::Axis>& axes) const {
    Shape at;
    for (const Token::Axis& axis : axes) at.push_back(r.mesh_coordinate[axis_of(axis.axis)]);
    return at;
  }
  Starts starts_of(const std::vector<Token::Axis>& axes, std::size_t d, std::int64_t& total) const {
    std::map<Shape, const Record*> shares;
    for (const std::size_t index : records_) {
      const Record& r = record(index);
      const auto [share, is_new] = shares.try_emplace(coordinates(r, axes), &r);
      if (is_new || share->second->shape[d] == r.shape[d]) continue;
      throw Error("{}: {}: rank {} holds {} and rank {} holds {} of the same share", rule_.source,
                  to_string(r.id), share->second->rank, to_string(share->second->shape), r.rank,
                  to_string(r.shape));
    }
    Shape extents;
    for (const Token::Axis& axis : axes) extents.push_back(dump_.mesh.shape[axis_of(axis.axis)]);
    Starts starts;
    total = 0;
    for (std::int64_t i = 0; i < element_count(extents); ++i) {
      const Shape at = unravel(i, extents);
      const auto share = shares.find(at);
      if (share == shares.end()) {
        std::vector<std::string> words;
        for (std::size_t a = 0; a < axes.size(); ++a)
          words.push_back(fmt::format("{}={}", axes[a].axis, at[a]));
        throw Error("{}: {}: the share of {} is missing", rule_.source,
                    to_string(record(records_.front()).id), fmt::join(words, ", "));
      }
      starts[at] = total;
      if (__builtin_add_overflow(total, share->second->shape[d], &total))
        throw Error("{}: {} would have more than 2^63 elements", rule_.source, to_string(share->second->id));
    }
    return starts;
  }

  void by_offsets() const {
    for (const std::size_t index : records_) {
      record(index).global_shape = record(index).shape;
      record(index).offsets = Shape(dims_.size(), 0);
    }
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const std::vector<Token::Axis>& axes = dims_[d]->axes;
      if (axes.empty()) continue;
      std::int64_t total = 0;
      const Starts starts = starts_of(axes, d, total);
      const bool by_rows = axes.front().how == How::rows;
      for (const std::size_t index : records_) {
        Record& r = record(index);
        r.global_shape[d] = total;
        if (by_rows)
          r.rows = rows_of(r);
        else
          (*r.offsets)[d] = starts.at(coordinates(r, axes));
      }
    }
  }

  // The record of the same rank, step and micro-batch that the rule's `rows` names.
  std::size_t rows_of(const Record& r) const {
    for (std::size_t i = 0; i < dump_.records.size(); ++i) {
      const Record& other = dump_.records[i];
      if (other.rank == r.rank && other.id.step == r.id.step && other.id.micro_batch == r.id.micro_batch &&
          glob_match(rule_.rows, paths_of(other.id))) {
        return i;
      }
    }
    throw Error("{}: rank {} recorded no '{}' for {}", rule_.source, r.rank, rule_.rows, to_string(r.id));
  }

  void flatten() const {
    if (rule_.shape.size() != dims_.size())
      throw Error("{}: shape is {}; expected the extents of all {} dims, since the tensor is recorded flat",
                  rule_.source, to_string(rule_.shape), dims_.size());
    std::int64_t total = 0;
    const Starts starts = starts_of({{rule_.flat, How::blocks}}, 0, total);
    for (const std::size_t index : records_) {
      Record& r = record(index);
      r.global_shape = rule_.shape;
      const std::int64_t all = element_count(box_of(r, dump_.mesh).shape);
      const std::int64_t first = starts.at({r.mesh_coordinate[axis_of(rule_.flat)]});
      // What is behind the tensor's end pads the ranks to equal lengths.
      r.flattened_range = {std::min(first, all), std::min(first + r.shape[0], all)};
    }
  }

  void trim(Record& r) const {
    if (rule_.cut.empty()) return;
    if (rule_.cut.size() != r.global_shape.size())
      throw Error("{}: cut is {}; expected {} extents, 0 for those that have no padding", rule_.source,
                  to_string(rule_.cut), r.global_shape.size());
    r.cut = r.global_shape;
    for (std::size_t d = 0; d < rule_.cut.size(); ++d) {
      if (rule_.cut[d] > (*r.cut)[d])
        throw Error("{}: {}: is {} without its padding, {} with it", rule_.source, to_string(r.id),
                    to_string(rule_.cut), to_string(*r.cut));
      if (rule_.cut[d] != 0) (*r.cut)[d] = rule_.cut[d];
    }
  }

  Dump& dump_;
  const LayoutRules::Layout& rule_;
  std::vector<std::size_t> records_;
  std::vector<const Token*> dims_;
  std::vector<std::size_t> partial_;
  bool is_zigzag_ = false;
};

}  // namespace

void cut_by_rules(Dump& dump, const std::vector<LayoutRules::Layout>& rules) {
  std::map<Identity, std::vector<std::size_t>> tensors;
  for (std::size_t i = 0; i < dump.records.size(); ++i) tensors[dump.records[i].id].push_back(i);
  for (const auto& [id, records] : tensors) {
    const std::vector<std::string> paths = paths_of(id);
    const auto rule = std::ranges::find_if(rules, [&](const auto& r) { return glob_match(r.match, paths); });
    if (rule == rules.end()) continue;
    rule->used = true;
    Cut(dump, *rule, records).run();
    for (const std::size_t i : records) dump.records[i].unplaced.clear();
  }
}

}  // namespace assay
