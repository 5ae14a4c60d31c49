#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "assay/compare/report/html/html.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"

// What data.js reads: the length of a JSON text as four bytes, the text, then for each of the columns it
// names one number a tensor, 32 bits as four planes of bytes (equal bytes stand together, and deflate well),
// then the histograms.
namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// What a page carries, from everything to what is left when that is too large.
enum class Detail { all, no_values_of_passed, no_histograms_of_passed, few_details, no_maps, only_open };
constexpr std::size_t few_details = 10'000;

constexpr const char* said[] = {
    "",
    "worst elements of tensors that passed",
    "ulp histograms of tensors that passed",
    "reasons, values and histograms beyond the first 10,000 that did not pass",
    "where the errors are, but for the first",
    "tensors that passed, but for the pictures above",
};

class Dictionary {
 public:
  std::uint32_t operator[](const std::string& text) {
    const auto [at, is_new] = index_.try_emplace(text, static_cast<std::uint32_t>(texts_.size()));
    if (is_new) texts_.push_back(printable(text));
    return at->second;
  }
  const Json& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, std::uint32_t> index_;
  Json texts_ = Json::array();
};

// The three digits that are shown: digits + 1000 (exponent + 400); 0: zero, 1: infinite, 2: NaN. None is
// negative.
std::uint32_t three_digits(double value) {
  if (std::isnan(value)) return 2;
  if (std::isinf(value)) return 1;
  if (!(value > 0)) return 0;
  const std::string text = fmt::format("{:.2e}", value);  // d.dde-dd
  const int digits = 100 * (text[0] - '0') + 10 * (text[2] - '0') + (text[3] - '0');
  return static_cast<std::uint32_t>(digits + 1000 * (std::stoi(text.substr(5)) + 400));
}

class Columns {
 public:
  void add(const char* name, std::uint32_t value) {
    for (auto& [known, values] : columns_) {
      if (known == name) return values.push_back(value);
    }
    columns_.emplace_back(name, std::vector<std::uint32_t>{value});
  }
  void add_float(const char* name, double value) { add(name, three_digits(value)); }
  Json names() const {
    Json names = Json::array();
    for (const auto& [name, values] : columns_) names.push_back(name);
    return names;
  }
  std::string planes() const {
    std::string out;
    for (const auto& [name, values] : columns_) {
      for (int plane = 0; plane < 4; ++plane) {
        for (const std::uint32_t v : values) out += static_cast<char>(v >> (8 * plane) & 0xff);
      }
    }
    return out;
  }

 private:
  std::vector<std::pair<std::string_view, std::vector<std::uint32_t>>> columns_;
};

Json map_of(const ErrorMap& map) {
  return {{"rows", map.rows},           {"columns", map.columns},
          {"grid_rows", map.grid_rows}, {"grid_columns", map.grid_columns},
          {"shades", shades(map)},      {"text", extent_of_errors(map)}};
}

Json values_of(const Finding& f, std::int64_t at, double actual, double reference) {
  return {to_string(unravel(at, f.actual_shape)), format_value(f.actual_dtype, actual),
          format_value(f.reference_dtype, reference)};
}

// A line each.
std::string causes_of(const Finding& f) {
  std::vector<std::string> lines;
  for (const Diagnosis& d : f.diagnoses) lines.push_back(sentence(d));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string origin_of(const Finding& f) {
  if (f.exemption) return sentence(*f.exemption);
  return f.origin ? fmt::format("{}: {}", name(f.origin->kind), f.origin->reason) : "";
}

// The command without its end, where the page can add that itself; else "".
std::string head_of_command(const Finding& f) {
  const std::string tail = only_option(f.name);
  const bool plain = printable(f.name) == f.name && f.repeat.ends_with(tail);
  return plain ? f.repeat.substr(0, f.repeat.size() - tail.size()) : "";
}

class Packer {
 public:
  /// @param sample  one run of 64 findings in so many, to know the size in advance; 1: all
  Packer(const Report& report, std::span<const HeatGrid> grids, Detail detail, std::size_t sample,
         std::size_t most_rows = std::numeric_limits<std::size_t>::max())
      : report_(report), grids_(grids), detail_(detail), sample_(sample), most_rows_(most_rows) {}

  std::string pack() {
    for (std::size_t i = 0; i < report_.findings.size(); ++i) {
      if (i / 64 % sample_ != 0) continue;
      const Finding& f = report_.findings[i];
      const bool open = !is_fine(f.verdict);
      if (!open && detail_ >= Detail::only_open) continue;
      if (names_.size() >= most_rows_) break;
      add(f, i, open);
    }
    Json meta = {{"rows", names_.size()},         {"total", report_.findings.size()},
                 {"columns", columns_.names()},   {"names", std::move(names_)},
                 {"rules", rules_.texts()},       {"reasons", reasons_.texts()},
                 {"causes", causes_.texts()},     {"origins", origins_.texts()},
                 {"types", types_.texts()},       {"notes", notes_.texts()},
                 {"commands", commands_.texts()}, {"histograms", histograms_.size()},
                 {"details", std::move(details_)}};
    meta["verdicts"] = Json::array();
    for (int v = 0; v < verdict_count; ++v)
      meta["verdicts"].push_back(
          {name(static_cast<Verdict>(v)), std::string(1, mark(static_cast<Verdict>(v)))});
    meta["grids"] = Json::array();
    for (const HeatGrid& grid : grids_) {
      Json rows = Json::array(), columns = Json::array();
      for (const std::string& r : grid.rows) rows.push_back(printable(r));
      for (const std::string& c : grid.columns) columns.push_back(printable(c));
      meta["grids"].push_back({{"rows", std::move(rows)}, {"columns", std::move(columns)}});
    }
    const std::string text = meta.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string out;
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(text.size() >> shift & 0xff);
    return out + text + columns_.planes() + histograms_;
  }

 private:
  void add(const Finding& f, std::size_t order, bool open) {
    names_.push_back(printable(f.name));
    const Metrics empty;
    const Metrics& m = f.metrics ? *f.metrics : empty;
    columns_.add("order", static_cast<std::uint32_t>(order));
    columns_.add("verdict", static_cast<std::uint32_t>(f.verdict));
    columns_.add("phase", static_cast<std::uint32_t>(f.id.phase));
    columns_.add("step", static_cast<std::uint32_t>(f.id.step));
    columns_.add("judged", is_judged(f) ? 1 : 0);
    columns_.add("measured", f.metrics ? 1 : 0);
    columns_.add_float("ratio", f.ratio);
    columns_.add_float("max_abs", m.max_abs);
    columns_.add_float("max_rel", m.max_rel);
    columns_.add_float("relative_l2", m.relative_l2);
    columns_.add_float("max_ulp", static_cast<double>(m.max_ulp));
    columns_.add("rule", rules_[f.rule]);
    const bool in_detail = open ? detail_ < Detail::few_details || open_++ < few_details / sample_
                                : detail_ < Detail::no_values_of_passed;
    const bool with_reason = in_detail || !open;
    columns_.add("reason", reasons_[with_reason ? f.reason : ""]);
    columns_.add("cause", causes_[with_reason ? causes_of(f) : ""]);
    columns_.add("origin", origins_[with_reason ? origin_of(f) : ""]);
    columns_.add("note", notes_[with_reason ? fmt::format("{}", fmt::join(f.notes, "\n")) : ""]);
    columns_.add("type", types_[type_of(f)]);
    columns_.add("command", commands_[head_of_command(f)]);
    constexpr const char* grid_columns[][2] = {{"row0", "column0"}, {"row1", "column1"}};
    for (std::size_t g = 0; g < grids_.size() && g < 2; ++g) {
      columns_.add(grid_columns[g][0], static_cast<std::uint32_t>(grids_[g].row[order]));
      columns_.add(grid_columns[g][1], static_cast<std::uint32_t>(grids_[g].column[order]));
    }
    const bool with_histogram = open ? in_detail : detail_ < Detail::no_histograms_of_passed;
    columns_.add("bins", with_histogram ? static_cast<std::uint32_t>(m.ulp_histogram.size()) : 0);
    if (with_histogram) {
      for (const std::int64_t n : m.ulp_histogram)  // a sixth of an octave
        histograms_ += static_cast<char>(
            n == 0 ? 0 : std::min(255L, 1 + std::lround(6 * std::log2(static_cast<double>(n)))));
    }
    const std::size_t before = details_.size();
    if (in_detail) add_details(f);
    columns_.add("detail", details_.size() > before ? static_cast<std::uint32_t>(details_.size()) : 0);
  }

  static std::string type_of(const Finding& f) {
    if (!f.metrics && f.actual_shape.empty()) return "";
    return fmt::format(
        "{} {}{}", name(f.actual_dtype), to_string(f.actual_shape),
        f.actual_dtype == f.reference_dtype ? "" : fmt::format(" against {}", name(f.reference_dtype)));
  }

  void add_details(const Finding& f) {
    Json d = Json::object();
    if (f.metrics) {
      const Metrics& m = *f.metrics;
      if (const std::int64_t at = worst_element(m); at >= 0)
        d["worst"] = values_of(f, at, f.actual_value, f.reference_value);
      if (m.over > 0) d["outside"] = share_outside(m);
      if (m.special_mismatch + m.actual.nan + m.actual.infinite + m.reference.nan + m.reference.infinite > 0)
        d["special"] = {m.actual.nan, m.reference.nan, m.actual.infinite, m.reference.infinite,
                        m.special_mismatch};
      if (m.ulp_dtype != f.actual_dtype) d["ulp"] = name(m.ulp_dtype);
    }
    for (const ComparedStatistic& s : f.statistics) d["statistics"].push_back(statistic_cells(s));
    if (!f.count_source.empty())
      d["count"] = fmt::format("{} ({})", f.count.value_or(0), printable(f.count_source));
    if (!std::isnan(f.required) && f.ratio > 1) d["required"] = short_number(f.required);
    for (const Opinion& o : f.others)
      d["also"].push_back({printable(o.policy), name(o.verdict), short_number(o.ratio)});
    if (!f.repeat.empty() && head_of_command(f).empty()) d["command"] = printable(f.repeat);
    if (f.error_map && detail_ < Detail::no_maps) {
      if (!f.error_map->cells.empty()) d["map"] = map_of(*f.error_map);
      for (const ErrorMap::Element& e : f.error_map->worst) {
        Json element = values_of(f, e.at, e.actual, e.reference);
        element.push_back(short_number(e.error));
        element.push_back(short_number(e.ratio));
        d["elements"].push_back(std::move(element));
      }
    }
    if (!d.empty()) details_.push_back(std::move(d));
  }

  const Report& report_;
  std::span<const HeatGrid> grids_;
  Detail detail_;
  std::size_t sample_, most_rows_, open_ = 0;
  Columns columns_;
  Dictionary rules_, reasons_, causes_, origins_, notes_, types_, commands_;
  Json names_ = Json::array(), details_ = Json::array();
  std::string histograms_;
};

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                bytes.size(), 6) != Z_OK)
    throw Error("the data of the HTML report cannot be compressed ({} bytes)", bytes.size());
  out.resize(size);
  return out;
}

}  // namespace

std::string page_data(const Report& report, std::span<const HeatGrid> grids, std::size_t budget,
                      std::string& left_out) {
  const std::size_t sample = report.findings.size() > 10'000 ? 16 : 1;
  for (const Detail detail : {Detail::all, Detail::no_values_of_passed, Detail::no_histograms_of_passed,
                              Detail::few_details, Detail::no_maps, Detail::only_open}) {
    const std::string what = said[static_cast<std::size_t>(detail)];
    if (!what.empty()) left_out += (left_out.empty() ? "" : "; ") + what;
    // A sample deflates a little worse than the whole: what it finds far too large need not be tried.
    if (sample > 1 && sample * deflated(Packer(report, grids, detail, sample).pack()).size() > budget / 5 * 4)
      continue;
    std::string data = base64(deflated(Packer(report, grids, detail, 1).pack()));
    if (data.size() <= budget) return data;
  }
  for (std::size_t rows = 65'536;; rows /= 2) {
    std::string data = base64(deflated(Packer(report, grids, Detail::only_open, 1, rows).pack()));
    if (data.size() > budget && rows > 0) continue;
    left_out +=
        fmt::format("; all beyond the first {} that did not pass", grouped(static_cast<std::int64_t>(rows)));
    return data;
  }
}

}  // namespace assay
