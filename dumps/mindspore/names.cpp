#include "assay/dumps/mindspore/names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "assay/dumps/io/csv.h"
#include "assay/dumps/msprobe/names.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

template <class T>
std::optional<T> whole(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [parsed, problem] = std::from_chars(text.data(), end, value);
  if (text.empty() || problem != std::errc() || parsed != end) return std::nullopt;
  return value;
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// {type}.{op}.{task}.{stream}.{timestamp}: the timestamp counts microseconds, so that a version number is
// none.
bool starts_as_kernel(const std::vector<std::string_view>& parts) {
  return parts.size() >= 5 && !parts[0].empty() && !parts[1].empty() && is_digits(parts[2]) &&
         is_digits(parts[3]) && is_digits(parts[4]);
}

// "(1, 3, 224)", "()", "[4 5]".
std::optional<Shape> parse_shape(std::string_view text) {
  constexpr std::string_view separators = " ,;()[]";
  Shape shape;
  for (std::size_t at = 0; at < text.size();) {
    at = text.find_first_not_of(separators, at);
    if (at == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    const auto extent = whole<std::int64_t>(text.substr(at, end - at));
    if (!extent || shape.size() == 64) return std::nullopt;
    shape.push_back(*extent);
    at = end;
  }
  return shape;
}

std::optional<double> parse_statistic(std::string_view cell) {
  if (cell == "True" || cell == "true") return 1;
  if (cell == "False" || cell == "false") return 0;
  return whole<double>(cell);
}

// Taken to be printed through a C++ stream, whose default are six significant digits: half a unit of the
// sixth.
constexpr double printed_digits = 5e-6;

/// Which column has which title.
struct Columns {
  std::size_t type, name, timestamp, io, slot, dtype, shape, max, min, mean, l2, checksum;
};
constexpr std::size_t absent = static_cast<std::size_t>(-1);

Columns find_columns(const std::vector<std::string>& header) {
  const auto column = [&](std::initializer_list<std::string_view> titles) {
    for (std::size_t i = 0; i < header.size(); ++i) {
      if (std::ranges::find(titles, header[i]) != titles.end()) return i;
    }
    return absent;
  };
  const Columns c{
      column({"Op Type"}),   column({"Op Name"}),   column({"Timestamp"}),    column({"IO", "Input/Output"}),
      column({"Slot"}),      column({"Data Type"}), column({"Shape"}),        column({"Max Value"}),
      column({"Min Value"}), column({"Avg Value"}), column({"L2Norm Value"}), column({"MD5", "MD5 Value"})};
  if (std::max({c.type, c.name, c.timestamp, c.io, c.slot, c.dtype, c.shape}) == absent) {
    throw Error("line 1: expected the columns Op Type, Op Name, Timestamp, IO, Slot, Data Type and Shape");
  }
  return c;
}

KernelStatistics parse_row(const std::vector<std::string>& cells, const Columns& c) {
  const std::size_t needed = std::max({c.type, c.name, c.timestamp, c.io, c.slot, c.dtype, c.shape}) + 1;
  if (cells.size() < needed) throw Error("{} columns, expected at least {}", cells.size(), needed);
  KernelStatistics row;
  row.name.type = cells[c.type];
  row.name.op = cells[c.name];
  const auto timestamp = whole<std::uint64_t>(cells[c.timestamp]);
  const auto slot = whole<std::int64_t>(cells[c.slot]);
  if (!timestamp || !slot || *slot < 0) throw Error("Timestamp or Slot is not a number");
  row.name.timestamp = *timestamp;
  row.name.slot = *slot;
  row.name.is_input = cells[c.io] == "input";
  if (!row.name.is_input && cells[c.io] != "output")
    throw Error("IO is '{}', expected input or output", cells[c.io]);
  row.name.dtype = parse_dtype(cells[c.dtype]);
  if (!row.name.dtype) throw Error("is {}, which cannot be compared", cells[c.dtype]);
  const auto shape = parse_shape(cells[c.shape]);
  if (!shape) throw Error("Shape is '{}'", cells[c.shape]);
  element_count(*shape);
  row.shape = *shape;
  const auto number = [&](std::size_t column) {
    return column < cells.size() ? parse_statistic(cells[column]) : std::nullopt;
  };
  Statistics found;
  found.min = number(c.min);
  found.max = number(c.max);
  found.mean = number(c.mean);
  found.l2 = number(c.l2);
  if (found != Statistics{}) {
    found.rounding = printed_digits;
    row.statistics = found;
  }
  if (c.checksum < cells.size()) {
    const std::string& text = cells[c.checksum];
    const bool is_hex =
        text.size() == 32 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (is_hex) row.checksum = "md5:" + text;
  }
  return row;
}

}  // namespace

std::optional<KernelName> parse_kernel_name(std::string_view file) {
  if (!file.ends_with(".npy")) return std::nullopt;
  file.remove_suffix(4);
  const std::vector<std::string_view> parts = dotted_parts(file);
  if (!starts_as_kernel(parts)) return std::nullopt;
  std::size_t io = 5;  // further digits may follow the timestamp
  while (io < parts.size() && is_digits(parts[io])) ++io;
  // {input|output}.{slot}.{format}[.{dtype}]
  if (io + 3 > parts.size() || io + 4 < parts.size()) return std::nullopt;
  const auto timestamp = whole<std::uint64_t>(parts[4]);
  const auto slot = whole<std::int64_t>(parts[io + 1]);
  if ((parts[io] != "input" && parts[io] != "output") || !timestamp || !slot || *slot < 0)
    return std::nullopt;
  KernelName name{std::string(parts[0]), std::string(parts[1]), *timestamp, parts[io] == "input", *slot, {}};
  if (io + 4 == parts.size()) name.dtype = parse_dtype(parts[io + 3]);
  return name;
}

bool is_kernel_protobuf(std::string_view file) {
  const std::vector<std::string_view> parts = dotted_parts(file);
  return parts.size() == 5 && starts_as_kernel(parts) && parts[4].size() >= 10;
}

bool is_statistics_header(std::string_view text) {
  return text.starts_with("Op Type,Op Name,");
}

std::vector<KernelStatistics> parse_statistics(std::string_view text, std::string_view where,
                                               std::vector<std::string>& left_out) {
  std::vector<KernelStatistics> rows;
  std::vector<std::string> cells;
  CsvRows csv(text);
  std::size_t broken = 0;
  std::string first;
  try {
    csv.next(cells);
    const Columns columns = find_columns(cells);
    while (csv.next(cells)) {
      try {
        rows.push_back(parse_row(cells, columns));
      } catch (const Error& problem) {
        if (broken++ == 0) first = fmt::format("line {}: {}", csv.line(), problem.what());
      }
    }
  } catch (const Error& problem) {  // the rows behind it cannot be told apart
    left_out.push_back(fmt::format("{}: {}; it and what follows is left out", where, problem.what()));
  }
  if (broken != 0)
    left_out.push_back(fmt::format("{}: {} rows cannot be read, first {}", where, broken, first));
  return rows;
}

std::map<std::string, std::string> parse_mapping(std::string_view text) {
  std::map<std::string, std::string> names;
  std::vector<std::string> cells;
  for (CsvRows csv(text); csv.next(cells);) {
    if (cells.size() >= 2) names.emplace(cells[0], cells[1]);
  }
  return names;
}

KernelFolder parse_kernel_folder(const std::filesystem::path& absolute) {
  constexpr std::int64_t max_number = 1'000'000'000;
  std::vector<std::string> parts;
  for (const auto& part : absolute.lexically_normal()) {
    if (!part.empty()) parts.push_back(part.string());
  }
  KernelFolder folder;
  if (!parts.empty() && parts.back() == "constants") {
    folder.is_constants = true;
    parts.pop_back();
  }
  const auto number = [&](std::size_t from_end) -> std::optional<std::int64_t> {
    if (from_end >= parts.size()) return std::nullopt;
    const auto value = whole<std::int64_t>(parts[parts.size() - 1 - from_end]);
    return value && *value >= 0 && *value < max_number ? value : std::nullopt;
  };
  // Constants may stand beside the iterations.
  for (const std::size_t rank_at : {std::size_t{3}, std::size_t{2}}) {
    if (rank_at >= parts.size()) continue;
    const std::string& word = parts[parts.size() - 1 - rank_at];
    if (!word.starts_with("rank_")) continue;
    const auto rank = whole<int>(std::string_view(word).substr(5));
    if (!rank || *rank < 0) continue;
    folder.rank = *rank;
    folder.step = rank_at == 3 ? number(0).value_or(0) : 0;
    folder.graph = parts[parts.size() - rank_at] + "/" + parts[parts.size() + 1 - rank_at];
    return folder;
  }
  if (number(0) && number(1) && number(3) && parts.size() > 5 && is_digits(parts[parts.size() - 5]) &&
      number(5)) {
    folder.step = *number(5);
    folder.rank = static_cast<int>(*number(3));
    folder.graph = parts[parts.size() - 3] + "/" + parts[parts.size() - 2];
    folder.rank_is_device = true;
  }
  return folder;
}

}  // namespace assay
