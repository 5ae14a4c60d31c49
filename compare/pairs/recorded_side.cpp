#include "assay/compare/pairs/recorded_side.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/compare/pairs/judge.h"
#include "assay/compare/pairs/replicas.h"
#include "assay/compare/pairs/statistic_bounds.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/layout/merged_sketch.h"
#include "assay/dumps/record/statistics.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

/// What the checksums say of the pair.
struct Checksums {
  std::string kind;  ///< empty: they cannot be compared
  std::optional<bool> equal;
  /// The exclusive or of all words is equal where they are only swapped, too.
  bool proves_equality() const { return equal == true && !kind.starts_with("xor"); }
};

/// The elements of a box.
TensorSource elements_in(const Tensor& whole, const Box& box) {
  const Shape strides = dense_strides(whole.shape());
  std::int64_t first = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) first += box.offsets[d] * strides[d];
  const std::byte* at = whole.bytes().data() + static_cast<std::size_t>(first) * size_of(whole.dtype());
  return strided_source(whole.dtype(), box.shape, at, strides, std::make_shared<Tensor>(whole));
}

// Those of the parts of a tensor say as much as one of the whole, where the other side is cut alike or has
// the values.
Checksums compare_parts(const RecordedSide& recorded, const RecordedSide& other) {
  const std::vector<PartChecksum>& parts = recorded.part_checksums;
  const std::string_view kind = checksum_kind(parts.front().checksum);
  Checksums found{fmt::format("{} of {} parts", kind, parts.size()), true};
  if (!other.values) {
    const auto are_alike = [&](const PartChecksum& a, const PartChecksum& g) {
      return a.boxes == g.boxes && checksum_kind(a.checksum) == checksum_kind(g.checksum);
    };
    if (!std::ranges::equal(parts, other.part_checksums, are_alike)) return {};
    found.equal = parts == other.part_checksums;
    return found;
  }
  const Tensor whole = other.values->whole();
  for (const PartChecksum& part : parts) {
    if (!part.is_box) return {};
    const auto is_equal = has_checksum(elements_in(whole, part.boxes.front()), part.checksum);
    if (!is_equal) return {};
    found.equal = *found.equal && *is_equal;
  }
  return found;
}

Checksums compare_checksums(const RecordedSide& a, const RecordedSide& g) {
  const RecordedSide& recorded = a.values ? g : a;
  const RecordedSide& other = a.values ? a : g;
  if (!recorded.part_checksums.empty()) return compare_parts(recorded, other);
  if (recorded.checksum.empty()) return {};
  Checksums found{std::string(checksum_kind(recorded.checksum)), {}};
  if (other.values) {
    found.equal = has_checksum(*other.values, recorded.checksum);
  } else if (found.kind == checksum_kind(other.checksum)) {
    found.equal = recorded.checksum == other.checksum;
  }
  return found;
}

KnownStatistics known(const RecordedSide& side, const RecordedSide& other, DType dtype) {
  if (!side.values) return {side.statistics.value_or(Statistics{}), dtype, false};
  if (!other.statistics) return {{}, dtype, true};
  KnownStatistics computed{statistics_of(*side.values), dtype, true};
  if (other.statistics->l2) computed.values.l2 = l2_norm(*side.values);
  return computed;
}

std::string lacking(const RecordedSide& actual, const RecordedSide& reference) {
  if (actual.lacking == reference.lacking) return actual.lacking + " recorded on both sides";
  std::string text;
  for (const auto& [side, name] : {std::pair{&actual, "actual"}, {&reference, "reference"}}) {
    if (!side->lacking.empty())
      text += fmt::format("{}{} recorded on the {} side", text.empty() ? "" : ", ", side->lacking, name);
  }
  return text;
}

class RecordedPair {
 public:
  RecordedPair(Finding& f, const RecordedSide& actual, const RecordedSide& reference, const Expectation& e)
      : f_(f),
        e_(e),
        lacking_(lacking(actual, reference)),
        elements_(element_count(f.actual_shape)),
        actual_(known(actual, reference, f.actual_dtype)),
        reference_(known(reference, actual, f.reference_dtype)) {
    if (f.actual_dtype == f.reference_dtype) checksums_ = compare_checksums(actual, reference);
  }

  void judge() {
    static const Row exact;
    const std::string bits = bits_rule(e_, f_.actual_dtype);
    const Row* row = bits.empty() ? deciding_row(e_) : &exact;
    if (row == nullptr) return checksums_.proves_equality() ? pass() : leave_without_rule(no_row_text(e_));
    f_.rule = bits.empty() ? rule_text(e_, *row) : bits;
    f_.row = bits.empty() ? to_string(*e_.policy, *row) : bits;
    f_.atol = row->atol;
    f_.rtol = row->rtol;
    f_.ratio = compare(*row);
    if (!bits.empty() && f_.actual_dtype != f_.reference_dtype && is_float(f_.actual_dtype)) {
      fail(fmt::format("{} against {}", name(f_.actual_dtype), name(f_.reference_dtype)));
    } else if (!(f_.ratio <= 1)) {
      fail(outside());
      if (bits.empty() && !e_.count) look_for_looser_row();
    } else if (!bits.empty() && checksums_.equal == false) {
      f_.ratio = std::numeric_limits<double>::infinity();
      fail(bits_differ());
    } else if (checksums_.proves_equality()) {
      pass();
    } else if (elements_ == 0) {
      f_.verdict = Verdict::passed;
    } else {
      judge_inside(*row);
    }
  }

 private:
  double compare(const Row& row) {
    f_.statistics = compare_statistics(actual_, reference_, elements_, row.atol, row.rtol);
    double largest = 0;
    for (const ComparedStatistic& s : f_.statistics) {
      const double r = ratio(s);
      if (!(r <= largest)) largest = r;
      if (std::isnan(largest)) break;
    }
    return largest;
  }

  void judge_inside(const Row& row) {
    std::vector<std::string> agreeing, unbounded;
    for (const ComparedStatistic& s : f_.statistics)
      (std::isinf(s.allowed) ? unbounded : agreeing).push_back(s.name);
    if (checksums_.equal == true) agreeing.push_back(checksums_.kind);
    std::string rest = checksums_.equal == false ? bits_differ() + "; " : "";
    if (!unbounded.empty())
      rest += fmt::format("how far {} may be off is not known; ", fmt::join(unbounded, ", "));
    if (agreeing.empty()) {
      f_.verdict = Verdict::not_comparable;
      f_.reason = rest.empty() ? lacking_ + ": the sides have no number in common" : rest + lacking_;
    } else if (zeros_would_agree(row)) {
      f_.verdict = Verdict::mistrusted;
      f_.reason = "every statistic is below its allowed error: those of zeros would be, too; " + lacking_;
    } else {
      f_.verdict = Verdict::statistics_agree;
      f_.reason = fmt::format("{} agree{}; {}{}: the elements were not compared", fmt::join(agreeing, ", "),
                              agreeing.size() == 1 ? "s" : "", rest, lacking_);
    }
  }

  // No element can be seen where its allowed error is as large as itself, unless the two are nearer than
  // that.
  bool zeros_would_agree(const Row& row) const {
    bool blind = false;
    for (const ComparedStatistic& s : f_.statistics) {
      const double size = std::abs(s.reference);
      if (size == 0 || std::isinf(s.allowed)) continue;
      if (s.allowed < size || std::abs(s.actual - s.reference) <= row.rtol * size) return false;
      blind = true;
    }
    return blind;
  }

  void pass() {
    f_.verdict = Verdict::passed;
    f_.rule = f_.row = fmt::format(
        "every bit equal, by {}{}", checksums_.kind,
        checksums_.kind.starts_with("crc32") ? ": of pairs that differ, one of 2^32 has equal ones" : "");
  }

  void fail(const std::string& reason) {
    f_.verdict = Verdict::failed;
    f_.reason = reason + "; " + lacking_;
  }

  void leave_without_rule(std::string reason) {
    f_.verdict = Verdict::no_rule;
    f_.rule = f_.reason = std::move(reason);
  }

  std::string outside() const {
    std::string text;
    for (const ComparedStatistic& s : f_.statistics) {
      if (ratio(s) <= 1) continue;
      text += fmt::format("{}{} {:.9g} against {:.9g}, allowed {:.3g}", text.empty() ? "" : "; ", s.name,
                          s.actual, s.reference, s.allowed);
    }
    return text;
  }

  void look_for_looser_row() {
    const std::vector<ComparedStatistic> strictest = f_.statistics;
    for (const Row& looser : e_.policy->rows_of(e_.row_dtype).subspan(1)) {
      if (compare(looser) > 1) continue;
      f_.verdict = Verdict::no_rule;
      f_.reason = count_needed(looser);
      break;
    }
    f_.statistics = strictest;
  }

  std::string bits_differ() const {
    return fmt::format("{} differs: the bits do, by how much cannot be said", checksums_.kind);
  }

  Finding& f_;
  const Expectation& e_;
  std::string lacking_;
  std::int64_t elements_;
  KnownStatistics actual_, reference_;
  Checksums checksums_;
};

void check_statistics(const Dump& dump, const LogicalTensor& tensor, const Statistics& statistics) {
  const std::string found = contradiction({statistics, tensor.dtype, false}, element_count(tensor.shape));
  if (!found.empty())
    throw Error("{}: no tensor has these statistics: {}", dump.location(tensor.records.front()), found);
}

}  // namespace

RecordedSide recorded_side(const Dump& dump, const LogicalTensor& tensor, std::string_view side) {
  RecordedSide s;
  if (without_bits(dump, tensor) == nullptr) {
    const Merged merged = merge(dump, tensor);
    s.values = merged.tensor;
    if (!merged.replicas.empty()) s.copies_differ = to_string(merged.replicas.front(), side);
    return s;
  }
  MergedStatistics merged = merge_statistics(dump, tensor);
  const bool is_sketched = has_sketches(dump, tensor);
  if (is_sketched) {
    const MergedSketch sketched = merge_sketches(dump, tensor, {});
    if (const auto& print = sketched.sketch.fingerprint)
      merged.checksum = fmt::format("fingerprint:{:016x}", *print);
    if (!sketched.replicas.empty())
      merged.copies_differ =
          fmt::format("ranks {} and {} should hold the same bits; their fingerprints differ",
                      sketched.replicas.front().rank_a, sketched.replicas.front().rank_b);
  }
  if (!merged.copies_differ.empty()) s.copies_differ = fmt::format("{}: {}", side, merged.copies_differ);
  const auto recorded = [&](auto&& has) {
    return std::ranges::any_of(tensor.records, [&](std::size_t i) { return has(dump.records[i]); });
  };
  s.lacking = is_sketched         ? "only a sketch was"
              : merged.statistics ? "only statistics were"
              : recorded([](const Record& r) { return r.statistics.has_value(); })
                  ? "only statistics of parts, which do not add up, were"
              : !merged.part_checksums.empty()                                ? "only checksums of parts were"
              : recorded([](const Record& r) { return !r.checksum.empty(); }) ? "only a checksum was"
                                                                              : "no values were";
  if (merged.statistics) check_statistics(dump, tensor, *merged.statistics);
  s.statistics = merged.statistics;
  s.checksum = std::move(merged.checksum);
  s.part_checksums = std::move(merged.part_checksums);
  return s;
}

void judge_recorded(Finding& f, const RecordedSide& actual, const RecordedSide& reference,
                    const Expectation& e) {
  f.count = e.count;
  if (!may_judge(f, e)) return;
  RecordedPair(f, actual, reference, e).judge();
  if (actual.copies_differ.empty() && reference.copies_differ.empty()) return;
  f.verdict = Verdict::replicas_differ;
  f.rule = "replicas: every bit equal";
  f.reason = actual.copies_differ.empty() ? reference.copies_differ : actual.copies_differ;
}

void accept_statistics(Finding& f) {
  if (f.verdict != Verdict::statistics_agree) return;
  f.verdict = Verdict::passed;
  f.notes.push_back(std::move(f.reason));
  f.reason.clear();
  for (std::string* text : {&f.rule, &f.row}) *text = "statistics only, as accepted: " + *text;
}

}  // namespace assay
