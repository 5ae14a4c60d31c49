#include "assay/compare/rules/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "assay/compare/rules/layout_tables.h"
#include "assay/compare/rules/policy.h"
#include "assay/compare/rules/required_text.h"
#include "assay/dumps/io/file.h"
#include "assay/dumps/io/parse_toml.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// The kinds of rule, each with the keys it has; the first says what it matches.
struct Kind {
  std::string_view name, match, value, more = {};
};
constexpr Kind kinds[] = {{"rename", "from", "to", "of"},
                          {"operator", "match", "op"},
                          {"count", "match", "count"},
                          {"tolerance", "match", "policy"},
                          {"ignore", "match", "reason"}};

void expect_keys(const toml::table& rule, const Kind& kind, const std::string& where) {
  for (const auto& [key, node] : rule) {
    if (key.str() != kind.match && key.str() != kind.value && key.str() != kind.more)
      throw Error("{}: has a key '{}'; expected '{}' and '{}'{} only", where, key.str(), kind.match,
                  kind.value, kind.more.empty() ? "" : fmt::format(", and perhaps '{}',", kind.more));
  }
}

}  // namespace

Rules Rules::load(const std::string& file) {
  if (!std::filesystem::is_regular_file(file))
    throw Error("{}: is no file; expected a rules file in TOML", file);
  const auto mapped = MappedFile::open(file);
  const toml::table table = parse_toml(mapped->text(), file, "a rules file in TOML");
  Rules rules;
  const std::string short_name = std::filesystem::path(file).filename();
  for (const auto& [key, node] : table) {
    const std::string kind(key.str());
    const auto no_kind = [&] {
      return Error(
          "{}: '{}' is no kind of rule; expected [[rename]], [[operator]], [[count]], [[tolerance]], "
          "[[ignore]], "
          "[[mesh]], [[renumber]] or [[layout]]",
          file, kind);
    };
    if (!node.is_array_of_tables()) throw no_kind();
    const Kind* known = std::ranges::find(kinds, kind, &Kind::name);
    std::int64_t index = 0;
    for (const toml::node& entry : *node.as_array()) {
      const toml::table& t = *entry.as_table();
      const std::string where = fmt::format("{}: [[{}]] {}", file, kind, ++index);
      Entry rule;
      rule.source = fmt::format("{}, [[{}]] {}", short_name, kind, index);
      if (read_layout_table(rules.layout_, kind, t, where, rule.source)) continue;
      if (known == std::end(kinds)) throw no_kind();
      rule.pattern = required_text(t, known->match, where);
      expect_keys(t, *known, where);
      if (kind == "rename") {
        const std::optional<std::string> to = t["to"].value<std::string>();
        if (!to) throw Error("{}: 'to' is missing; expected a string, '' to remove what matches", where);
        rule.text = *to;
        try {
          rule.from = Pattern(rule.pattern);
          rule.from->check_replacement(rule.text);
        } catch (const Error& e) {
          throw Error("{}: {}", where, e.what());
        }
        const std::string of = t["of"].value_or<std::string>(t.contains("of") ? "" : "module");
        if (of != "module" && of != "argument")
          throw Error("{}: 'of' is none of what has names; expected 'module' or 'argument'", where);
        rule.of_argument = of == "argument";
        rules.renames_.push_back(rule);
      } else if (kind == "operator") {
        rule.text = required_text(t, "op", where);
        try {
          find_operator(rule.text);
        } catch (const Error& e) {
          throw Error("{}: {}", where, e.what());
        }
        rules.operators_.push_back(rule);
      } else if (kind == "count") {
        const std::optional<std::int64_t> count = t["count"].value<std::int64_t>();
        if (!count || *count < 0) throw Error("{}: 'count' is missing; expected an integer >= 0", where);
        rule.number = *count;
        rules.counts_.push_back(rule);
      } else if (kind == "tolerance") {
        const std::string name = required_text(t, "policy", where);
        try {
          rule.policy = load_policy(name);
        } catch (const Error& e) {
          throw Error("{}: {}", where, e.what());
        }
        rules.tolerances_.push_back(rule);
      } else {
        rule.text = required_text(t, "reason", where);
        rules.ignores_.push_back(rule);
      }
    }
  }
  return rules;
}

Identity Rules::renamed(Identity id) const {
  std::string argument = id.slot + "." + id.arg;
  for (const Entry& rule : renames_) {
    if (rule.from->replace(rule.of_argument ? argument : id.module, rule.text)) rule.used = true;
  }
  const std::size_t dot = argument.find('.');
  id.slot = argument.substr(0, dot);
  id.arg = dot == std::string::npos ? "" : argument.substr(dot + 1);
  return id;
}

const Rules::Entry* Rules::first(const std::vector<Entry>& rules, const std::vector<std::string>& paths) {
  for (const Entry& rule : rules) {
    if (!glob_match(rule.pattern, paths)) continue;
    rule.used = true;
    return &rule;
  }
  return nullptr;
}

std::optional<std::string> Rules::operator_of(const std::vector<std::string>& paths) const {
  const Entry* rule = first(operators_, paths);
  return rule == nullptr ? std::nullopt : std::optional(rule->text);
}

std::optional<Rules::Count> Rules::count_of(const std::vector<std::string>& paths) const {
  const Entry* rule = first(counts_, paths);
  return rule == nullptr ? std::nullopt : std::optional<Count>({rule->number, rule->source});
}

const Policy* Rules::policy_of(const std::vector<std::string>& paths) const {
  const Entry* rule = first(tolerances_, paths);
  return rule == nullptr ? nullptr : &rule->policy;
}

std::optional<std::string> Rules::ignored(const std::vector<std::string>& paths) const {
  const Entry* rule = first(ignores_, paths);
  return rule == nullptr ? std::nullopt : std::optional(rule->source + ": " + rule->text);
}

Rules Rules::without_renames() const {
  Rules rules = *this;
  rules.renames_.clear();
  return rules;
}

std::vector<std::string> Rules::unused() const {
  std::vector<std::string> sources;
  for (const auto* rules : {&renames_, &operators_, &counts_, &tolerances_, &ignores_}) {
    for (const Entry& rule : *rules) {
      if (!rule.used) sources.push_back(rule.source + " ('" + rule.pattern + "')");
    }
  }
  const std::vector<std::string> of_layout = layout_.unused();
  sources.insert(sources.end(), of_layout.begin(), of_layout.end());
  return sources;
}

}  // namespace assay
