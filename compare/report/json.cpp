#include <algorithm>
#include <nlohmann/json.hpp>

#include "assay/compare/report/json_diagnosis.h"
#include "assay/compare/report/json_number.h"
#include "assay/compare/report/report.h"
#include "assay/compare/result/version.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

Json index(std::int64_t at, const Shape& shape) {
  return at < 0 ? Json(nullptr) : Json(unravel(at, shape));
}

Json side(const Side& s) {
  return {{"nan", s.nan},
          {"inf", s.infinite},
          {"zero", s.zero},
          {"subnormal", s.subnormal},
          {"min", json_number(s.min)},
          {"max", json_number(s.max)},
          {"mean", json_number(s.mean)},
          {"std", json_number(s.std)}};
}

Json metrics(const Metrics& m, const Shape& shape) {
  Json histogram = Json::object();  // "0": equal, "k": 2^(k-1) <= ulp < 2^k
  for (std::size_t k = 0; k < m.ulp_histogram.size(); ++k) {
    if (m.ulp_histogram[k] > 0) histogram[std::to_string(k)] = m.ulp_histogram[k];
  }
  return {{"elements", m.elements},
          {"max_abs", json_number(m.max_abs)},
          {"max_abs_index", index(m.max_abs_at, shape)},
          {"max_rel", json_number(m.max_rel)},
          {"max_rel_index", index(m.max_rel_at, shape)},
          {"mean_abs", json_number(m.mean_abs)},
          {"mean_rel", json_number(m.mean_rel)},
          {"rmse", json_number(m.rmse)},
          {"relative_l2", json_number(m.relative_l2)},
          {"one_minus_cosine", json_number(m.one_minus_cosine)},
          {"ulp_dtype", name(m.ulp_dtype)},
          {"max_ulp", m.max_ulp},
          {"max_ulp_index", index(m.max_ulp_at, shape)},
          {"ulp_histogram_log2", std::move(histogram)},
          {"different_bits", m.different_bits},
          {"special_mismatch", m.special_mismatch},
          {"overflowed", m.overflowed},
          {"above", m.above},
          {"below", m.below},
          {"outside", m.over},
          {"actual", side(m.actual)},
          {"reference", side(m.reference)}};
}

Json finding(const Finding& f) {
  Json j = {{"name", f.name},
            {"verdict", name(f.verdict)},
            {"rule", f.rule},
            {"reason", f.reason},
            {"step", f.id.step},
            {"micro_batch", f.id.micro_batch},
            {"phase", name(f.id.phase)},
            {"module", f.id.module},
            {"slot", f.id.slot},
            {"arg", f.id.arg},
            {"call", f.id.call},
            {"notes", f.notes}};
  j["count"] = f.count ? Json(*f.count) : Json(nullptr);
  j["count_source"] = f.count_source;
  if (is_judged(f)) {
    j["actual_dtype"] = name(f.actual_dtype);
    j["reference_dtype"] = name(f.reference_dtype);
    j["shape"] = f.actual_shape;
    j["error_over_allowed"] = json_number(f.ratio);
  }
  if (f.metrics) {
    const std::int64_t at = worst_element(*f.metrics);
    j["required_tolerance"] = json_number(f.required);
    j["worst_index"] = index(at, f.actual_shape);
    j["actual_value"] = json_number(f.actual_value);
    j["reference_value"] = json_number(f.reference_value);
    j["metrics"] = metrics(*f.metrics, f.actual_shape);
  }
  if (!f.statistics.empty()) j["statistics"] = Json::array();
  for (const ComparedStatistic& s : f.statistics) {
    j["statistics"].push_back({{"name", s.name},
                               {"actual", json_number(s.actual)},
                               {"reference", json_number(s.reference)},
                               {"allowed", json_number(s.allowed)}});
  }
  if (f.sketch) {
    j["sketch"] = {{"distance", json_number(f.sketch->distance)}, {"low", json_number(f.sketch->low)},
                   {"high", json_number(f.sketch->high)},         {"allowed", json_number(f.sketch->allowed)},
                   {"norm", json_number(f.sketch->norm)},         {"values", f.sketch->values}};
  }
  Json others = Json::array();
  for (const Opinion& o : f.others) {
    others.push_back(
        {{"policy", o.policy}, {"verdict", name(o.verdict)}, {"error_over_allowed", json_number(o.ratio)}});
  }
  j["other_policies"] = std::move(others);
  Json diagnoses = Json::array();
  for (const Diagnosis& d : f.diagnoses) diagnoses.push_back(json_diagnosis(d));
  j["diagnoses"] = std::move(diagnoses);
  if (!f.unjudged.empty()) j["unjudged"] = f.unjudged;
  if (f.exemption) {
    j["exemption"] = {{"kind", row_for(f.exemption->kind).key},
                      {"measured", json_number(f.exemption->measured)},
                      {"allowed", json_number(f.exemption->allowed)},
                      {"source", f.exemption->source}};
  }
  if (f.origin) {
    j["origin"] = {{"kind", name(f.origin->kind)},
                   {"local_error_over_allowed", json_number(f.origin->local_ratio)},
                   {"reason", f.origin->reason},
                   {"root", f.origin->root}};
  }
  j["repeat"] = f.repeat;
  return j;
}

std::string snake_case(std::string_view words) {
  std::string key(words);
  std::ranges::replace(key, ' ', '_');
  return key;
}

Json header(const Report& r, std::string_view schema) {
  Json policies = Json::array();
  for (const PolicyUsed& p : r.policies)
    policies.push_back({{"name", p.name}, {"table_sha256", p.table_sha256}});
  return {{"assay", version},
          {"schema", schema},
          {"verb", r.verb},
          {"command", r.command},
          {"actual", r.actual},
          {"actual_format", r.actual_format},
          {"reference", r.reference},
          {"reference_format", r.reference_format},
          {"policies", std::move(policies)}};
}

Json coverage(const Report& r) {
  if (!r.coverage) return nullptr;
  const Coverage& c = *r.coverage;
  return {{"judged", c.judged},
          {"sources", c.sources},
          {"unjudged", c.unjudged},
          {"why_unjudged", c.why_unjudged}};
}

Json summary(const Report& r) {
  Json counts = Json::object();
  for (int v = 0; v < verdict_count; ++v)
    counts[snake_case(name(static_cast<Verdict>(v)))] = r.count(static_cast<Verdict>(v));
  counts["compared"] = r.compared();
  counts["not_compared"] = r.not_compared();
  const Finding* first = r.first_failure();
  return {{"exit_status", r.exit_status()},
          {"counts", std::move(counts)},
          {"coverage", coverage(r)},
          {"first_failure", first == nullptr ? Json(nullptr) : Json(first->name)},
          {"seconds", r.seconds},
          {"notes", r.notes}};
}

// In ASCII, so that no name can move a terminal's cursor. Bytes that are no UTF-8 become U+FFFD.
std::string line(const Json& j) {
  return j.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const Report& r) {
  Json head = header(r, "report/2");
  head.update(summary(r));
  std::string out = line(head);
  out.back() = ',';  // was the closing brace: the findings go on, never all of them in memory as JSON
  out += "\n\"findings\": [";
  for (const Finding& f : r.findings) {
    out += &f == &r.findings.front() ? "\n" : ",\n";
    out += line(finding(f));
  }
  return out + "\n]}\n";
}

std::string to_jsonl(const Report& r) {
  std::string out = line(header(r, "finding/2")) + "\n";
  for (const Finding& f : r.findings) out += line(finding(f)) + "\n";
  return out + line(summary(r)) + "\n";
}

}  // namespace assay
