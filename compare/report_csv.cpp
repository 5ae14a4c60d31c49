#include <fmt/format.h>

#include "assay/compare/report.h"

namespace assay {
namespace {

// Spreadsheets run cells that begin like a formula; quotes are doubled as RFC 4180 says.
std::string cell(std::string_view text) {
  std::string out = printable(text);
  if (!out.empty() && std::string_view("=+-@").find(out.front()) != std::string_view::npos)
    out.insert(0, "'");
  if (out.find_first_of(",\"") == std::string::npos) return out;
  std::string quoted = "\"";
  for (const char c : out) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string row(const Finding& f) {
  std::string line =
      fmt::format("{},{},{},{},{},{},{},{},{}", cell(f.name), name(f.verdict), f.id.step, f.id.micro_batch,
                  name(f.id.phase), cell(f.id.module), cell(f.id.slot), cell(f.id.arg), f.id.call);
  if (f.metrics) {
    const Metrics& m = *f.metrics;
    const std::int64_t at = worst_element(m);
    line += fmt::format(",{},{},{},{},{},{},{},{},{},{},{},{},{},{}", name(f.actual_dtype),
                        name(f.reference_dtype), cell(to_string(f.actual_shape)), f.ratio, f.required,
                        m.max_abs, m.max_rel, m.mean_abs, m.rmse, m.relative_l2, m.one_minus_cosine,
                        m.max_ulp, cell(at < 0 ? "" : to_string(unravel(at, f.actual_shape))),
                        fmt::format("{},{}", f.actual_value, f.reference_value));
  } else {
    line += ",,,,,,,,,,,,,,,";
  }
  return line + fmt::format(",{},{}\r\n", cell(f.rule), cell(f.reason));
}

}  // namespace

std::string to_csv(const Report& report) {
  std::string out =
      "name,verdict,step,micro_batch,phase,module,slot,arg,call,actual_dtype,reference_dtype,shape,error_"
      "over_allowed,"
      "required_tolerance,max_abs,max_rel,mean_abs,rmse,relative_l2,one_minus_cosine,max_ulp,worst_index,"
      "actual_value,"
      "reference_value,rule,reason\r\n";
  for (const Finding& f : report.findings) out += row(f);
  return out;
}

}  // namespace assay
