#include "assay/compare/rules/layout_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "assay/dumps/io/pattern.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

/// One table, and the keys it may have.
class TomlTable {
 public:
  TomlTable(const toml::table& table, const std::string& where, std::vector<std::string_view> keys)
      : table_(table), where_(where) {
    for (const auto& [key, node] : table) {
      if (std::ranges::find(keys, key.str()) == keys.end())
        throw Error("{}: has a key '{}'; expected {}", where, key.str(), fmt::join(keys, ", "));
    }
  }
  bool has(std::string_view key) const { return table_.contains(key); }
  std::string text(std::string_view key) const {
    const auto value = table_[key].value<std::string>();
    if (!value || value->empty()) throw Error("{}: '{}' is missing; expected a string", where_, key);
    return *value;
  }
  std::string text_or_none(std::string_view key) const { return has(key) ? text(key) : ""; }
  std::vector<std::int64_t> numbers(std::string_view key, std::int64_t least) const {
    std::vector<std::int64_t> result;
    const toml::array* const array = table_[key].as_array();
    if (array != nullptr) {
      for (const toml::node& node : *array) {
        const auto value = node.value<std::int64_t>();
        if (!node.is_integer() || *value < least) break;
        result.push_back(*value);
      }
    }
    if (array == nullptr || result.size() != array->size())
      throw Error("{}: '{}' is no list of integers >= {}", where_, key, least);
    return result;
  }
  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> result;
    const toml::array* const array = table_[key].as_array();
    if (array != nullptr) {
      for (const toml::node& node : *array) {
        if (!node.is_string()) break;
        result.push_back(*node.value<std::string>());
      }
    }
    if (array == nullptr || array->empty() || result.size() != array->size())
      throw Error("{}: '{}' is no list of strings", where_, key);
    return result;
  }

 private:
  const toml::table& table_;
  const std::string& where_;
};

void read_mesh(LayoutRules& rules, const TomlTable& table, const std::string& where,
               const std::string& source) {
  LayoutRules::MeshRule rule{
      {table.texts("dims"), table.numbers("shape", 1)}, table.text_or_none("rank"), source};
  if (rule.mesh.dims.size() != rule.mesh.shape.size())
    throw Error("{}: has {} dims and {} extents in shape; expected one each", where, rule.mesh.dims.size(),
                rule.mesh.shape.size());
  element_count(rule.mesh.shape);
  for (std::size_t i = 0; i < rule.mesh.dims.size(); ++i) {
    const auto end = rule.mesh.dims.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(rule.mesh.dims.begin(), end, rule.mesh.dims[i]) != end)
      throw Error("{}: dims names '{}' twice; expected one extent for each", where, rule.mesh.dims[i]);
  }
  if (!rule.rank.empty()) check_pattern(rule.rank, 1, where);
  rules.meshes.push_back(std::move(rule));
}

void read_renumber(LayoutRules& rules, const toml::table& t, const TomlTable& table, const std::string& where,
                   const std::string& source) {
  LayoutRules::Renumber rule;
  rule.source = source;
  rule.pattern = table.text("match");
  rule.axis = table.text("axis");
  rule.to = table.text_or_none("to");
  if (table.has("micro_batch")) {
    const auto value = t["micro_batch"].value<bool>();
    if (!t["micro_batch"].is_boolean()) throw Error("{}: 'micro_batch' is no boolean; expected true", where);
    rule.micro_batch = *value;
  }
  check_pattern(rule.pattern, rule.micro_batch ? 0 : 1, where);
  const bool interleaved = t["interleaved"].value_or(false);
  if (int{table.has("starts")} + int{table.has("per")} + int{interleaved} != 1)
    throw Error("{}: expected one of starts = [..], per = N and interleaved = true", where);
  if (table.has("starts")) rule.starts = table.numbers("starts", 0);
  if (table.has("per")) {
    rule.per = t["per"].value_or(std::int64_t{0});
    if (rule.per < 1) throw Error("{}: 'per' is {}; expected how many each coordinate has", where, rule.per);
  }
  if (!rule.to.empty() && rule.to.find("$n") == std::string::npos)
    throw Error("{}: 'to' is '{}'; expected $n in it, which stands for the global number", where, rule.to);
  rules.renumbers.push_back(std::move(rule));
}

void read_layout(LayoutRules& rules, const TomlTable& table, const std::string& where,
                 const std::string& source) {
  LayoutRules::Layout rule;
  rule.source = source;
  rule.match = table.text("match");
  try {
    rule.dims = parse_dims(table.text("dims"));
  } catch (const Error& problem) {
    throw Error("{}: {}", where, problem.what());
  }
  rule.flat = table.text_or_none("flat");
  if (table.has("shape")) rule.shape = table.numbers("shape", 0);
  if (table.has("cut")) rule.cut = table.numbers("cut", 0);
  rule.rows = table.text_or_none("rows");
  if (rule.shape.empty() != rule.flat.empty())
    throw Error("{}: expected 'flat' and 'shape' together: a flat tensor does not know its extents", where);
  bool needs_rows = false, is_zigzag = false;
  for (const LayoutRules::Token& token : rule.dims) {
    for (const auto& axis : token.axes) {
      is_zigzag = is_zigzag || axis.how == LayoutRules::Token::How::zigzag;
      if (axis.how != LayoutRules::Token::How::rows) continue;
      needs_rows = true;
      if (&token != &rule.dims.front() || token.axes.size() != 1)
        throw Error("{}: only the first dimension can be in rows of any order, over one axis", where);
    }
  }
  if (needs_rows == rule.rows.empty())
    throw Error("{}: expected 'rows', the tensor with the row of each row, beside a dimension [axis:rows]",
                where);
  if (needs_rows && (is_zigzag || !rule.flat.empty()))
    throw Error("{}: rows of any order cannot also be in zigzag or flat; expected one of them", where);
  rules.layouts.push_back(std::move(rule));
}

}  // namespace

void check_pattern(const std::string& pattern, std::size_t groups, const std::string& where) {
  std::size_t found = 0;
  try {
    found = Pattern(pattern).groups();
  } catch (const Error& problem) {
    throw Error("{}: {}", where, problem.what());
  }
  if (found < groups)
    throw Error("{}: '{}' has no group ( ); expected one around the number", where, pattern);
}

bool read_layout_table(LayoutRules& rules, std::string_view kind, const toml::table& t,
                       const std::string& where, const std::string& source) {
  if (kind == "mesh") {
    read_mesh(rules, {t, where, {"dims", "shape", "rank"}}, where, source);
  } else if (kind == "renumber") {
    const TomlTable table(t, where, {"match", "axis", "to", "starts", "per", "interleaved", "micro_batch"});
    read_renumber(rules, t, table, where, source);
  } else if (kind == "layout") {
    read_layout(rules, {t, where, {"match", "dims", "flat", "shape", "cut", "rows"}}, where, source);
  } else {
    return false;
  }
  return true;
}

}  // namespace assay
