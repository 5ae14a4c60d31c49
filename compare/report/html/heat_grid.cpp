#include "assay/compare/report/html/heat_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

namespace assay {
namespace {

constexpr int most_grid_rows = 96, most_grid_columns = 48;
constexpr int none = -1;

// "model.layers.3.moe.experts.5.fc1": layer 3, expert 5, what "moe.experts.fc1".
struct Place {
  int layer = none, expert = none;
  std::string what;
};

std::optional<int> number(std::string_view part) {
  if (part.empty() || part.size() > 6) return {};
  int n = 0;
  for (const char c : part) {
    if (c < '0' || c > '9') return {};
    n = 10 * n + (c - '0');
  }
  return n;
}

Place place_of(std::string_view path) {
  Place place;
  std::string_view before;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find_first_of("./"), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    const std::optional<int> n = number(part);
    if (n && before.find("expert") != std::string_view::npos) {
      place.expert = *n;
    } else if (n && place.layer == none) {
      place.layer = *n;
      place.what.clear();  // "model.layers" says nothing
    } else if (!n) {
      place.what += fmt::format("{}{}", place.what.empty() ? "" : ".", part);
    }
    before = part;
  }
  if (place.what.empty() && place.layer != none) place.what = "layer";
  return place;
}

std::string up_to_dot(const std::string& text) {
  return text.substr(0, text.find_first_of("./"));
}

// In the order in which they first appear; false if there are too many.
bool label(const std::vector<std::string>& names, std::vector<std::string>& labels, std::vector<int>& index,
           int most) {
  std::map<std::string, int> known;
  labels.clear();
  index.clear();
  for (const std::string& name : names) {
    const auto [at, is_new] = known.try_emplace(name, static_cast<int>(labels.size()));
    if (is_new) labels.push_back(name);
    if (labels.size() > static_cast<std::size_t>(most)) return false;
    index.push_back(at->second);
  }
  return true;
}

// Numbers as rows or columns, several to a line where they are many; `none` comes first.
void label_numbers(const std::vector<int>& numbers, std::vector<std::string>& labels, std::vector<int>& index,
                   int most, const char* without) {
  int low = std::numeric_limits<int>::max(), high = none;
  bool has_none = false;
  for (const int n : numbers) {
    has_none = has_none || n == none;
    if (n != none) low = std::min(low, n);
    high = std::max(high, n);
  }
  const int first = has_none && without != nullptr ? 1 : 0;
  const int per_line = high == none ? 1 : (high - low) / most + 1;
  if (first == 1) labels.emplace_back(without);
  for (int n = low; high != none && n <= high; n += per_line) {
    const int last = std::min(n + per_line - 1, high);
    labels.push_back(last == n ? fmt::format("{}", n) : fmt::format("{}-{}", n, last));
  }
  for (const int n : numbers)
    index.push_back(n != none ? first + (n - low) / per_line : without != nullptr ? 0 : none);
}

std::optional<HeatGrid> operator_by_dtype(const Report& report) {
  HeatGrid grid{"Operators and dtypes", {}, {}, {}, {}};
  std::vector<std::string> operators, dtypes;
  for (const Finding& f : report.findings) {
    operators.push_back(up_to_dot(f.id.module));
    dtypes.emplace_back(f.metrics ? name(f.actual_dtype) : "-");
  }
  if (!label(operators, grid.rows, grid.row, most_grid_rows) ||
      !label(dtypes, grid.columns, grid.column, most_grid_columns))
    return {};
  return grid;
}

}  // namespace

std::optional<HeatGrid> layer_by_kind(const Report& report) {
  if (report.findings.size() < 4) return {};
  if (report.verb == "check") return operator_by_dtype(report);
  HeatGrid grid{"Layers and kinds of tensor", {}, {}, {}, {}};
  std::vector<Place> places;
  std::vector<int> layers;
  for (const Finding& f : report.findings) {
    places.push_back(place_of(f.id.module));
    layers.push_back(places.back().layer);
  }
  label_numbers(layers, grid.rows, grid.row, most_grid_rows, "none");
  const auto kind = [&](std::size_t i, int detail) {
    const Identity& id = report.findings[i].id;
    const std::string& what = places[i].what;
    const std::string_view gap = id.slot.empty() ? "" : " ";
    const std::size_t dot = what.rfind('.');
    switch (detail) {
      case 0:
        return fmt::format("{}{}{}{}{}", what, gap, id.slot, id.arg.empty() ? "" : " ", id.arg);
      case 1:
        return fmt::format("{}{}{}", what, gap, id.slot);
      case 2:
        return what;
      case 3:
        return what.substr(dot == std::string::npos ? 0 : dot + 1);
      case 4:
        return up_to_dot(what);
      default:
        return id.slot;
    }
  };
  for (int detail = 0; detail <= 5; ++detail) {
    std::vector<std::string> kinds;
    for (std::size_t i = 0; i < places.size(); ++i) kinds.push_back(kind(i, detail));
    if (!label(kinds, grid.columns, grid.column, most_grid_columns)) continue;
    if (grid.rows.size() * grid.columns.size() < 4 || grid.rows.size() < 2) return {};
    return grid;
  }
  return {};
}

std::optional<HeatGrid> layer_by_expert(const Report& report) {
  HeatGrid grid{"Layers and experts", {}, {}, {}, {}};
  std::vector<int> layers, experts;
  for (const Finding& f : report.findings) {
    const Place place = place_of(f.id.module);
    layers.push_back(place.expert == none ? none : place.layer);
    experts.push_back(place.expert);
  }
  if (std::ranges::count(experts, none) == std::ssize(experts)) return {};
  label_numbers(layers, grid.rows, grid.row, most_grid_rows, nullptr);
  label_numbers(experts, grid.columns, grid.column, most_grid_columns, nullptr);
  return grid.rows.empty() ? std::nullopt : std::optional(grid);
}

}  // namespace assay
