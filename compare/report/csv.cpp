#include <fmt/format.h>

#include <string>

#include "assay/compare/report/report.h"
#include "assay/compare/result/printable.h"

namespace assay {
namespace {

struct Column {
  const char* name;
  std::string (*text)(const Finding&);
};
// Empty where the pair was not measured.
struct Measure {
  const char* name;
  std::string (*text)(const Finding&, const Metrics&);
};

// Spreadsheets run cells that begin like a formula.
std::string disarmed(std::string_view text) {
  std::string out = printable(text);
  if (!out.empty() && std::string_view("=+-@").find(out.front()) != std::string_view::npos)
    out.insert(0, 1, '\'');
  return out;
}

// As RFC 4180 says.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string index(std::int64_t at, const Finding& f) {
  return at < 0 ? "" : to_string(unravel(at, f.actual_shape));
}

constexpr Column which[] = {
    {"name", [](const Finding& f) { return disarmed(f.name); }},
    {"verdict", [](const Finding& f) { return std::string(name(f.verdict)); }},
    {"step", [](const Finding& f) { return fmt::to_string(f.id.step); }},
    {"micro_batch", [](const Finding& f) { return fmt::to_string(f.id.micro_batch); }},
    {"phase", [](const Finding& f) { return std::string(name(f.id.phase)); }},
    {"module", [](const Finding& f) { return disarmed(f.id.module); }},
    {"slot", [](const Finding& f) { return disarmed(f.id.slot); }},
    {"arg", [](const Finding& f) { return disarmed(f.id.arg); }},
    {"call", [](const Finding& f) { return fmt::to_string(f.id.call); }},
};
// Empty where nothing was judged.
constexpr Column judged[] = {
    {"actual_dtype", [](const Finding& f) { return std::string(name(f.actual_dtype)); }},
    {"reference_dtype", [](const Finding& f) { return std::string(name(f.reference_dtype)); }},
    {"shape", [](const Finding& f) { return to_string(f.actual_shape); }},
    {"error_over_allowed", [](const Finding& f) { return fmt::to_string(f.ratio); }},
};
constexpr Measure measures[] = {
    {"required_tolerance", [](const Finding& f, const Metrics&) { return fmt::to_string(f.required); }},
    {"elements", [](const Finding&, const Metrics& m) { return fmt::to_string(m.elements); }},
    {"outside", [](const Finding&, const Metrics& m) { return fmt::to_string(m.over); }},
    {"max_abs", [](const Finding&, const Metrics& m) { return fmt::to_string(m.max_abs); }},
    {"max_abs_index", [](const Finding& f, const Metrics& m) { return index(m.max_abs_at, f); }},
    {"max_rel", [](const Finding&, const Metrics& m) { return fmt::to_string(m.max_rel); }},
    {"max_rel_index", [](const Finding& f, const Metrics& m) { return index(m.max_rel_at, f); }},
    {"mean_abs", [](const Finding&, const Metrics& m) { return fmt::to_string(m.mean_abs); }},
    {"mean_rel", [](const Finding&, const Metrics& m) { return fmt::to_string(m.mean_rel); }},
    {"rmse", [](const Finding&, const Metrics& m) { return fmt::to_string(m.rmse); }},
    {"relative_l2", [](const Finding&, const Metrics& m) { return fmt::to_string(m.relative_l2); }},
    {"one_minus_cosine", [](const Finding&, const Metrics& m) { return fmt::to_string(m.one_minus_cosine); }},
    {"max_ulp", [](const Finding&, const Metrics& m) { return fmt::to_string(m.max_ulp); }},
    {"worst_index", [](const Finding& f, const Metrics& m) { return index(worst_element(m), f); }},
    {"actual_value", [](const Finding& f, const Metrics&) { return fmt::to_string(f.actual_value); }},
    {"reference_value", [](const Finding& f, const Metrics&) { return fmt::to_string(f.reference_value); }},
    {"special_mismatch", [](const Finding&, const Metrics& m) { return fmt::to_string(m.special_mismatch); }},
    {"actual_nan", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.nan); }},
    {"actual_inf", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.infinite); }},
    {"actual_zero", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.zero); }},
    {"actual_subnormal", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.subnormal); }},
    {"actual_min", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.min); }},
    {"actual_max", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.max); }},
    {"actual_mean", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.mean); }},
    {"actual_std", [](const Finding&, const Metrics& m) { return fmt::to_string(m.actual.std); }},
    {"reference_nan", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.nan); }},
    {"reference_inf", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.infinite); }},
    {"reference_zero", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.zero); }},
    {"reference_subnormal",
     [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.subnormal); }},
    {"reference_min", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.min); }},
    {"reference_max", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.max); }},
    {"reference_mean", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.mean); }},
    {"reference_std", [](const Finding&, const Metrics& m) { return fmt::to_string(m.reference.std); }},
};
constexpr Column why[] = {
    {"rule", [](const Finding& f) { return disarmed(f.rule); }},
    {"count", [](const Finding& f) { return f.count ? fmt::to_string(*f.count) : std::string(); }},
    {"reason", [](const Finding& f) { return disarmed(f.reason); }},
    {"exemption",
     [](const Finding& f) { return disarmed(f.exemption ? sentence(*f.exemption) : std::string()); }},
    {"origin", [](const Finding& f) { return f.origin ? std::string(name(f.origin->kind)) : std::string(); }},
    {"root", [](const Finding& f) { return disarmed(f.origin ? f.origin->root : std::string()); }},
    {"because",
     [](const Finding& f) {
       return disarmed(f.diagnoses.empty() ? std::string() : sentence(f.diagnoses.front()));
     }},
    {"repeat", [](const Finding& f) { return disarmed(f.repeat); }},
};

}  // namespace

std::string to_csv(const Report& report) {
  std::string out;
  for (const Column& c : which) out += fmt::format("{},", c.name);
  for (const Column& c : judged) out += fmt::format("{},", c.name);
  for (const Measure& m : measures) out += fmt::format("{},", m.name);
  for (const Column& c : why) out += fmt::format("{},", c.name);
  out.back() = '\r';  // was the last comma
  out += '\n';
  for (const Finding& f : report.findings) {
    for (const Column& c : which) out += quoted(c.text(f)) + ",";
    for (const Column& c : judged) out += (is_judged(f) ? quoted(c.text(f)) : "") + ",";
    for (const Measure& m : measures) out += (f.metrics ? quoted(m.text(f, *f.metrics)) : "") + ",";
    for (const Column& c : why) out += quoted(c.text(f)) + ",";
    out.back() = '\r';
    out += '\n';
  }
  return out;
}

}  // namespace assay
