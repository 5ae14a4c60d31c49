#include "assay/dumps/layout/merged_statistics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "assay/dumps/io/checksum.h"
#include "assay/dumps/layout/assembly.h"

namespace assay {
namespace {

// Copies are added up in the same way, but not always in the same order: means and norms may differ in the
// last bits.
std::string difference(const Record& a, const Record& b) {
  const Statistics x = a.statistics.value_or(Statistics{}), y = b.statistics.value_or(Statistics{});
  const auto differ = [](const std::optional<double>& p, const std::optional<double>& q) {
    return p && q && *p != *q && !(std::isnan(*p) && std::isnan(*q));
  };
  const std::string ranks =
      fmt::format("ranks {} and {} should hold the same bits; they recorded", a.rank, b.rank);
  for (const auto& [name, which] : {std::pair{"max", &Statistics::max}, {"min", &Statistics::min}}) {
    if (differ(x.*which, y.*which))
      return fmt::format("{} the {} {} and {}", ranks, name, *(x.*which), *(y.*which));
  }
  if (checksum_kind(a.checksum) == checksum_kind(b.checksum) && a.checksum != b.checksum)
    return fmt::format("{} {} and {}", ranks, a.checksum, b.checksum);
  return "";
}

// By boxes the first of the records that hold them; a record that holds none has nothing to say.
std::map<std::vector<Box>, const Record*> parts_of(const Dump& dump, const LogicalTensor& tensor,
                                                   std::string& copies_differ) {
  std::map<std::vector<Box>, const Record*> parts;
  std::vector<RankPart> shares;
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    std::vector<Piece> pieces = pieces_of(record, dump.mesh);
    std::vector<Box> boxes;
    for (const Piece& piece : pieces) boxes.push_back(piece.box);
    if (boxes.empty()) continue;
    const auto [at, is_new] = parts.try_emplace(std::move(boxes), &record);
    if (is_new) shares.push_back({std::move(pieces), {}, record.rank});
    if (copies_differ.empty()) copies_differ = difference(*at->second, record);
  }
  check_cover(shares, tensor.shape, to_string(tensor.id));
  return parts;
}

bool is_partial_or_permuted(const Record& record) {
  return record.rows || std::ranges::any_of(record.placements, [](const Placement& p) {
           return p.kind == Placement::Kind::partial;
         });
}

template <class F>
std::optional<double> of_both(const std::optional<double>& a, const std::optional<double>& b, F f) {
  if (!a || !b) return std::nullopt;
  return std::isnan(*a) || std::isnan(*b) ? std::numeric_limits<double>::quiet_NaN() : f(*a, *b);
}

// The extremes and the norm of two parts.
Statistics of_both(const Statistics& a, const Statistics& b) {
  Statistics both;
  both.min = of_both(a.min, b.min, [](double x, double y) { return std::min(x, y); });
  both.max = of_both(a.max, b.max, [](double x, double y) { return std::max(x, y); });
  both.l2 = of_both(a.l2, b.l2, [](double x, double y) { return std::hypot(x, y); });
  both.rounding = std::max(a.rounding, b.rounding);
  if (a.arithmetic == b.arithmetic) both.arithmetic = a.arithmetic;
  return both;
}

}  // namespace

MergedStatistics merge_statistics(const Dump& dump, const LogicalTensor& tensor) {
  MergedStatistics merged;
  for (const std::size_t index : tensor.records) {
    if (is_partial_or_permuted(dump.records[index])) return merged;
  }
  const auto parts = parts_of(dump, tensor, merged.copies_differ);
  for (const auto& [boxes, record] : parts) {
    std::int64_t held = 0;
    for (const Box& box : boxes) held += element_count(box.shape);
    const bool is_padded = held != element_count(record->shape);
    const bool is_counted = record->statistics && record->statistics->nan;
    if (!record->statistics || is_padded || (is_counted && parts.size() > 1)) {
      merged.statistics.reset();
      break;
    }
    merged.statistics =
        merged.statistics ? of_both(*merged.statistics, *record->statistics) : record->statistics;
  }
  if (parts.size() == 1) {
    merged.checksum = parts.begin()->second->checksum;
    return merged;
  }
  for (const auto& [boxes, record] : parts) {
    if (record->checksum.empty()) {
      merged.part_checksums.clear();
      break;
    }
    const bool is_box = boxes.size() == 1 && boxes.front().shape == record->shape;
    merged.part_checksums.push_back({boxes, is_box, record->checksum});
  }
  return merged;
}

}  // namespace assay
