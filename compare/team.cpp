#include "assay/compare/team.h"

#include <algorithm>
#include <cereal/archives/binary.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <functional>
#include <numeric>
#include <queue>
#include <sstream>
#include <utility>

namespace assay {

// What cereal calls, to write and to read; doubles keep their bits.
template <class Archive>
void serialize(Archive& archive, Identity& i) {
  archive(i.step, i.micro_batch, i.phase, i.module, i.slot, i.arg, i.call);
}
template <class Archive>
void serialize(Archive& archive, Origin& o) {
  archive(o.kind, o.local_ratio, o.reason, o.root);
}
template <class Archive>
void serialize(Archive& archive, Exemption& e) {
  archive(e.kind, e.measured, e.allowed, e.source);
}
template <class Archive>
void serialize(Archive& archive, Diagnosis& d) {
  archive(d.cause, d.parameters.how, d.residual);
  for_each_parameter([&](std::string_view, auto& parameter) { archive(parameter); }, d.parameters);
}
template <class Archive>
void serialize(Archive& archive, Opinion& o) {
  archive(o.policy, o.verdict, o.ratio);
}
template <class Archive>
void serialize(Archive& archive, Side& s) {
  archive(s.nan, s.infinite, s.zero, s.subnormal, s.min, s.max, s.mean, s.std);
}
template <class Archive>
void serialize(Archive& archive, Metrics& m) {
  archive(m.elements, m.max_abs, m.max_abs_at, m.max_rel, m.max_rel_at, m.mean_abs, m.rmse, m.mean_rel,
          m.relative_l2, m.one_minus_cosine, m.ulp_dtype, m.max_ulp, m.max_ulp_at, m.ulp_histogram, m.actual,
          m.reference, m.different_bits, m.different_bits_at, m.special_mismatch, m.special_mismatch_at,
          m.overflowed, m.above, m.below, m.over, m.worst_ratio, m.worst_at);
}
template <class Archive>
void serialize(Archive& archive, ComparedStatistic& s) {
  archive(s.name, s.actual, s.reference, s.allowed);
}
template <class Archive>
void serialize(Archive& archive, ComparedSketch& s) {
  archive(s.distance, s.low, s.high, s.allowed, s.norm, s.values);
}
template <class Archive>
void serialize(Archive& archive, ErrorMap::Element& e) {
  archive(e.at, e.actual, e.reference, e.error, e.ratio);
}
template <class Archive>
void serialize(Archive& archive, ErrorMap& m) {
  archive(m.rows, m.columns, m.grid_rows, m.grid_columns, m.in_units_of_allowed, m.cells, m.outside,
          m.first_row, m.last_row, m.first_column, m.last_column, m.worst);
}
template <class Archive>
void serialize(Archive& archive, Finding& f) {
  archive(f.name, f.id, f.verdict, f.rule, f.row, f.reason, f.asks_for_bits, f.exemption, f.origin,
          f.diagnoses, f.notes, f.injected, f.count, f.count_source, f.actual_dtype, f.reference_dtype,
          f.actual_shape, f.reference_shape, f.metrics, f.statistics, f.sketch, f.ratio, f.atol, f.rtol,
          f.required, f.actual_value, f.reference_value, f.error_map, f.others, f.repeat);
}
template <class Archive>
void serialize(Archive& archive, Share& s) {
  archive(s.at, s.findings, s.unused_rules);
}

std::vector<int> share_out(std::span<const double> sizes, int processes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return sizes[i]; });
  using Load = std::pair<double, int>;  // and whose
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (int p = 0; p < processes; ++p) least.emplace(0, p);
  std::vector<int> owner(sizes.size());
  for (const std::size_t i : order) {
    const auto [load, process] = least.top();
    least.pop();
    owner[i] = process;
    // An empty tensor costs its finding all the same.
    least.emplace(load + std::max(sizes[i], 1.0), process);
  }
  return owner;
}

std::string pack(const Share& share) {
  std::ostringstream out;
  cereal::BinaryOutputArchive{out}(share);
  return std::move(out).str();
}

Share unpack_share(const std::string& text) {
  std::istringstream in(text);
  Share share;
  cereal::BinaryInputArchive{in}(share);
  return share;
}

bool gather_findings(const Team& team, const std::vector<std::size_t>& own, std::vector<Finding>& findings,
                     std::vector<std::string>& unused_rules) {
  Share mine{own, {}, unused_rules};
  for (const std::size_t i : own) mine.findings.push_back(std::move(findings[i]));
  const std::vector<std::string> shares = team.gather(pack(std::exchange(mine, {})));
  for (const std::string& text : shares) {
    Share share = unpack_share(text);
    for (std::size_t i = 0; i < share.at.size(); ++i)
      findings.at(share.at[i]) = std::move(share.findings.at(i));
    std::erase_if(unused_rules, [&](const std::string& rule) {
      return std::ranges::find(share.unused_rules, rule) == share.unused_rules.end();
    });
  }
  return !shares.empty();
}

}  // namespace assay
