#include "assay/compare/rules/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "assay/compare/rules/builtin_tables.h"
#include "assay/compare/rules/required_text.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/parse_toml.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr double largest_count = 0x1p53;  // integers are exact up to there

std::vector<double> numbers(const toml::table& section, std::string_view key, const std::string& where) {
  const toml::array* list = section[key].as_array();
  if (list == nullptr) throw Error("{}: '{}' is missing; expected a list of numbers", where, key);
  std::vector<double> values;
  for (const toml::node& node : *list) {
    const std::optional<double> value = node.value<double>();
    if (!value || !(*value >= 0) || std::isinf(*value))
      throw Error("{}: '{}' holds something else; expected finite numbers >= 0", where, key);
    values.push_back(*value);
  }
  return values;
}

// The rows of one [dtype] section. Counts rise, tolerances do not fall: a longer sum may not be held to less
// error.
std::vector<Row> read_rows(DType dtype, const toml::table& section, const std::string& where) {
  const std::vector<double> counts = numbers(section, "count", where);
  const bool one_number = section.contains("tolerance");
  for (const double count : counts) {
    if (count != std::floor(count) || count > largest_count)
      throw Error("{}: count {} is none; expected integers up to 2^53", where, count);
  }
  for (const char* other : {"atol", "rtol"}) {
    if (one_number && section.contains(other))
      throw Error("{}: has 'tolerance' and '{}'; expected 'tolerance', or 'atol' and 'rtol'", where, other);
  }
  const std::vector<double> atol = numbers(section, one_number ? "tolerance" : "atol", where);
  const std::vector<double> rtol = numbers(section, one_number ? "tolerance" : "rtol", where);
  if (counts.empty() || counts.size() != atol.size() || counts.size() != rtol.size()) {
    throw Error("{}: {} counts for {} and {} tolerances; expected as many of each", where, counts.size(),
                atol.size(), rtol.size());
  }
  if (counts.front() != 0) throw Error("{}: the first count is {}; expected 0", where, counts.front());
  const std::string source = required_text(section, "source", where);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i > 0 && (counts[i] <= counts[i - 1] || atol[i] < atol[i - 1] || rtol[i] < rtol[i - 1])) {
      throw Error("{}: row {} falls behind the row before it; expected rising counts and tolerances", where,
                  i + 1);
    }
    rows.push_back({dtype, static_cast<std::int64_t>(counts[i]), atol[i], rtol[i], source});
  }
  return rows;
}

// [limits]: numbers above 0, at least one that an error is held to.
Limits read_limits(const toml::table& table, const std::string& where) {
  const toml::table* section = table["limits"].as_table();
  if (section == nullptr)
    throw Error("{}: has no [limits]; expected the ratios to the baseline's error", where);
  Limits limits;
  const std::pair<std::string_view, double*> known[] = {{"max_relative", &limits.max_relative},
                                                        {"mean_relative", &limits.mean_relative},
                                                        {"rmse", &limits.rmse},
                                                        {"max_abs", &limits.max_abs},
                                                        {"noise", &limits.noise}};
  for (const auto& [key, node] : *section) {
    const auto field = std::ranges::find(known, key.str(), &std::pair<std::string_view, double*>::first);
    const std::optional<double> value = node.value<double>();
    if (field == std::end(known) || !value || !(*value > 0) || std::isinf(*value)) {
      throw Error(
          "{}: [limits] has '{}'; expected max_relative, mean_relative, rmse, max_abs or noise, and a finite "
          "number above 0",
          where, key.str());
    }
    *field->second = *value;
  }
  if (limits.max_relative + limits.mean_relative + limits.rmse + limits.max_abs == 0) {
    throw Error(
        "{}: [limits] holds no error to anything; expected max_relative, mean_relative, rmse or max_abs",
        where);
  }
  return limits;
}

Policy read_policy(std::string_view toml_text, const std::string& where) {
  const toml::table table = parse_toml(toml_text, where, "a tolerance table in TOML");
  Policy policy;
  policy.table_sha256 = sha256(std::as_bytes(std::span(toml_text)));
  policy.name = required_text(table, "name", where);
  policy.source = required_text(table, "source", where);
  const std::string rule = required_text(table, "rule", where);
  if (rule != "atol_rtol" && rule != "bitwise" && rule != "baseline") {
    throw Error("{}: rule '{}' is not known; expected atol_rtol, bitwise or baseline", where, rule);
  }
  policy.rule = rule == "bitwise" ? Rule::bitwise : rule == "baseline" ? Rule::baseline : Rule::atol_rtol;
  if (policy.rule == Rule::baseline) policy.limits = read_limits(table, where);
  for (const auto& [key, node] : table) {
    if (!node.is_table() || (policy.rule == Rule::baseline && key.str() == "limits")) continue;
    const std::optional<DType> dtype = parse_dtype(key.str());
    if (!dtype || !is_float(*dtype))
      throw Error("{}: section [{}] is no floating dtype; expected a torch name such as [bfloat16]", where,
                  key.str());
    if (!policy.rows_of(*dtype).empty())
      throw Error("{}: has a table for {} twice; expected one", where, assay::name(*dtype));
    const auto rows = read_rows(*dtype, *node.as_table(), where + ": [" + std::string(key.str()) + "]");
    policy.rows.insert(policy.rows.end(), rows.begin(), rows.end());
    std::ranges::stable_sort(policy.rows, {}, [](const Row& r) { return std::pair(r.dtype, r.count); });
  }
  if (policy.rule == Rule::atol_rtol && policy.rows.empty()) {
    throw Error("{}: has no [dtype] section; expected at least one", where);
  }
  return policy;
}

std::string read_file(const std::string& path) {
  if (!std::filesystem::is_regular_file(path))
    throw Error("{}: is no file; expected a tolerance table in TOML", path);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw Error("{}: cannot be opened; expected a tolerance table in TOML", path);
  std::string text;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, file)) text.append(part, n);
  std::fclose(file);
  return text;
}

}  // namespace

std::span<const Row> Policy::rows_of(DType dtype) const {
  const auto first = std::ranges::find(rows, dtype, &Row::dtype);
  const auto end = std::find_if(first, rows.end(), [&](const Row& row) { return row.dtype != dtype; });
  return {first, end};
}

const Row* Policy::find(DType dtype, std::int64_t count) const {
  const Row* found = nullptr;
  for (const Row& row : rows_of(dtype)) {
    if (row.count <= count) found = &row;
  }
  return found;
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const BuiltinTable& table : builtin_tables) names.push_back(table.name);
  names.emplace_back("derived");
  return names;
}

Policy load_policy(std::string_view name) {
  if (name.ends_with(".toml")) return read_policy(read_file(std::string(name)), std::string(name));
  if (name == "derived") {
    return {"derived",
            "running error analysis of the operator itself (Higham 2002, sec. 3.3)",
            Rule::derived,
            {},
            {}};
  }
  for (const BuiltinTable& table : builtin_tables) {
    if (table.name == name) return read_policy(table.text, fmt::format("tolerance table {}", name));
  }
  throw Error("there is no tolerance policy '{}'; expected one of {}, or a .toml file", name,
              fmt::join(policy_names(), ", "));
}

std::string to_string(const Policy& policy, const Row& row) {
  const std::string limit = row.atol == row.rtol ? fmt::format("{:g} (1+|g|)", row.atol)
                                                 : fmt::format("{:g} + {:g} |g|", row.atol, row.rtol);
  return fmt::format("{} {}, count >= {}: |a-g| <= {}", policy.name, name(row.dtype), row.count, limit);
}

}  // namespace assay
