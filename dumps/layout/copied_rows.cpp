#include "assay/dumps/layout/copied_rows.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "assay/dumps/layout/layout.h"
#include "assay/dumps/layout/merge.h"

namespace assay {
namespace {

// So many values before an input are looked at for its rows.
constexpr std::size_t most_sources = 12;

std::string_view row_of(const Tensor& t, std::int64_t row) {
  const std::span<const std::byte> all = t.bytes();
  const std::size_t length = all.size() / static_cast<std::size_t>(t.size() / t.shape().back());
  const auto bytes = all.subspan(static_cast<std::size_t>(row) * length, length);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::int64_t rows_in(const Tensor& t) {
  return t.size() == 0 ? 0 : t.size() / t.shape().back();
}

// The rows of a value, each to be found as often as it is copied.
class RowPlaces {
 public:
  explicit RowPlaces(Tensor t) : tensor_(std::move(t)), copies_(static_cast<std::size_t>(rows_in(tensor_))) {
    for (std::int64_t i = 0; i < rows_in(tensor_); ++i) places_[row_of(tensor_, i)].push_back(i);
  }
  RowPlaces(const RowPlaces&) = delete;
  RowPlaces& operator=(const RowPlaces&) = delete;

  struct Found {
    std::int64_t place, copy;  // the number of copies before this one
  };
  // Of rows that are equal, the one that was copied least.
  std::optional<Found> take(std::string_view row) {
    const auto found = places_.find(row);
    if (found == places_.end()) return {};
    const auto copies = [&](std::int64_t i) -> std::int64_t& { return copies_[static_cast<std::size_t>(i)]; };
    const std::int64_t place = *std::ranges::min_element(found->second, {}, copies);
    return Found{place, copies(place)++};
  }

 private:
  Tensor tensor_;
  std::vector<std::int64_t> copies_;
  std::unordered_map<std::string_view, std::vector<std::int64_t>> places_;
};

class CopiedRows {
 public:
  CopiedRows(Dump& dump, const PartRecords& placed, const Dump& other)
      : dump_(dump),
        placed_(placed),
        other_(other),
        own_(logical_tensors(dump)),
        theirs_(logical_tensors(other)) {
    for (const LogicalTensor& t : own_) by_id_.try_emplace(t.id, &t);
    for (const LogicalTensor& t : theirs_) their_id_.try_emplace(t.id, &t);
    for (std::size_t i = 0; i < dump.records.size(); ++i) {
      const Record& r = dump.records[i];
      if (r.id.phase == Phase::forward && r.id.slot == "input" && !is_float(r.dtype) && r.shape.size() == 1 &&
          r.has_bits)
        counts_[call_of(r)].push_back(i);
    }
  }

  void run() const {
    for (const auto& [id, records] : placed_) {
      const Record& first = dump_.records[records.front()];
      if (id.phase == Phase::forward && id.slot == "input" && is_float(first.dtype) && first.has_bits &&
          is_cut_in_rows(first))
        number(id, records);
    }
  }

 private:
  using CallOfRank = std::tuple<std::int64_t, std::int64_t, std::string, std::int64_t, int>;
  static CallOfRank call_of(const Record& r) {
    return {r.id.step, r.id.micro_batch, r.id.module, r.id.call, r.rank};
  }

  static bool is_cut_in_rows(const Record& r) {
    return r.unplaced.empty() && r.shape.size() >= 2 && r.shape.back() > 0 &&
           r.shape[0] != r.global_shape[0] &&
           std::equal(r.shape.begin() + 1, r.shape.end(), r.global_shape.begin() + 1);
  }

  Tensor whole(const Dump& dump, const LogicalTensor& t) const { return merge(dump, t).tensor.whole(); }

  // Whether a row is off by more than half of its size: that of another token, not roundings.
  static bool has_other_rows(const Tensor& a, const Tensor& b) {
    const std::int64_t width = b.shape().back();
    double off = 0, size = 0;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      if (i % width == 0) off = size = 0;
      const double x = b.value(i), d = a.value(i) - x;
      off += d * d;
      size += x * x;
      if ((i + 1) % width == 0 && off > size / 2) return true;
    }
    return false;
  }

  void number(const Identity& id, const std::vector<std::size_t>& records) const {
    const auto own = by_id_.find(id), there = their_id_.find(id);
    if (own == by_id_.end() || there == their_id_.end() || without_bits(other_, *there->second) != nullptr)
      return;
    const Tensor wanted = whole(other_, *there->second);
    if (wanted.shape() != own->second->shape || !has_other_rows(whole(dump_, *own->second), wanted)) return;
    // By their first row; ranks that hold the same are copies.
    std::map<std::int64_t, std::size_t> parts;
    for (const std::size_t i : records) parts.try_emplace(first_row(dump_.records[i]), i);
    for (const LogicalTensor* source : sources(*there->second)) {
      const auto numbers = numbers_by(*source, wanted, parts);
      if (numbers.empty()) continue;
      apply(id, numbers);
      return;
    }
  }

  std::int64_t first_row(const Record& r) const { return box_of(r, dump_.mesh).offsets[0]; }

  // The nearest first.
  std::vector<const LogicalTensor*> sources(const LogicalTensor& input) const {
    std::vector<const LogicalTensor*> found;
    for (const LogicalTensor& t : theirs_) {
      if (t.id.phase == Phase::forward && t.id.step == input.id.step &&
          t.id.micro_batch == input.id.micro_batch && (t.id.slot == "output" || t.id.slot == "input") &&
          t.seq < input.seq && t.dtype == input.dtype && t.id.module != input.id.module && !t.shape.empty() &&
          t.shape.back() == input.shape.back() && element_count(t.shape) > 0 && by_id_.contains(t.id) &&
          without_bits(other_, t) == nullptr)
        found.push_back(&t);
    }
    std::ranges::stable_sort(found, std::greater(), &LogicalTensor::seq);
    found.resize(std::min(found.size(), most_sources));
    return found;
  }

  using Numbers = std::map<std::int64_t, std::vector<std::int64_t>>;  // of each part, by its first row

  // Empty if the rows of a part, or the other side's, are no copies of the source's.
  Numbers numbers_by(const LogicalTensor& source, const Tensor& wanted,
                     const std::map<std::int64_t, std::size_t>& parts) const {
    RowPlaces theirs(whole(other_, source));
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> rows;
    for (std::int64_t i = 0; i < rows_in(wanted); ++i) {
      const auto found = theirs.take(row_of(wanted, i));
      if (!found) return {};
      rows[{found->place, found->copy}] = i;
    }
    RowPlaces own(whole(dump_, *by_id_.at(source.id)));
    Numbers numbers;
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t*> by_expert;  // and place
    for (const auto& [first, record] : parts) {
      const Tensor part = dump_.read(record);
      const std::vector<std::int64_t> experts = experts_of_rows(dump_.records[record]);
      std::vector<std::int64_t>& of_part = numbers[first];
      of_part.resize(static_cast<std::size_t>(rows_in(part)));
      for (std::size_t i = 0; i < of_part.size(); ++i) {
        const auto found = own.take(row_of(part, static_cast<std::int64_t>(i)));
        const auto row = found ? rows.find({found->place, found->copy}) : rows.end();
        if (row == rows.end()) return {};
        of_part[i] = row->second;
        if (!experts.empty()) by_expert[{experts[i], found->place}] = &of_part[i];
      }
    }
    // A token may have another expert than on the other side: where each row's is known, rows lie as these
    // do.
    if (std::cmp_equal(by_expert.size(), rows_in(wanted))) {
      std::int64_t number = 0;
      for (const auto& [at, row] : by_expert) *row = number++;
    }
    return numbers;
  }

  // By the counts of rows that the call was given; empty if it was not.
  std::vector<std::int64_t> experts_of_rows(const Record& input) const {
    const auto beside = counts_.find(call_of(input));
    for (const std::size_t i : beside == counts_.end() ? std::vector<std::size_t>() : beside->second) {
      const Record& r = dump_.records[i];
      const std::vector<std::int64_t> counts = dump_.read(i).indices();
      const std::int64_t first = box_of(r, dump_.mesh).offsets[0];
      std::vector<std::int64_t> experts;
      for (std::size_t e = 0; e < counts.size() && counts[e] >= 0 && counts[e] <= input.shape[0]; ++e)
        experts.insert(experts.end(), static_cast<std::size_t>(counts[e]),
                       first + static_cast<std::int64_t>(e));
      if (std::ssize(experts) == input.shape[0]) return experts;
    }
    return {};
  }

  // To all that the call was given and made.
  void apply(const Identity& input, const Numbers& numbers) const {
    for (const auto& [id, records] : placed_) {
      if (id.step != input.step || id.micro_batch != input.micro_batch || id.module != input.module ||
          id.call != input.call)
        continue;
      for (const std::size_t i : records) {
        Record& r = dump_.records[i];
        if (!is_cut_in_rows(r)) continue;
        const auto own = numbers.find(first_row(r));
        if (own == numbers.end() || std::ssize(own->second) != r.shape[0]) continue;
        r.row_numbers = std::make_shared<const std::vector<std::int64_t>>(own->second);
        r.offsets.reset();
        for (Placement& p : r.placements) {
          if (p.kind == Placement::Kind::shard && p.dim == 0) p = {};
        }
      }
    }
  }

  Dump& dump_;
  const PartRecords& placed_;
  const Dump& other_;
  std::vector<LogicalTensor> own_, theirs_;
  std::map<Identity, const LogicalTensor*> by_id_, their_id_;
  std::map<CallOfRank, std::vector<std::size_t>> counts_;  // inputs that may be the rows of each expert
};

}  // namespace

void number_copied_rows(Dump& dump, const PartRecords& placed, const Dump& other) {
  if (!placed.empty()) CopiedRows(dump, placed, other).run();
}

}  // namespace assay
