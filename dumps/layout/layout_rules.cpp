#include "assay/dumps/layout/layout_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "assay/dumps/io/pattern.h"
#include "assay/dumps/layout/layout_cut.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr int max_rank = 1'000'000;

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || parsed != end || value < 0) return std::nullopt;
  return value;
}

// Where a part of a text begins in it.
std::size_t begin_in(std::string_view text, std::string_view part) {
  return static_cast<std::size_t>(part.data() - text.data());
}

// Takes the ranks from the names of plain files: "rank3/layers.0.weight".
void ranks_from_names(Dump& dump, const LayoutRules::MeshRule& rule) {
  const Pattern pattern(rule.rank);
  for (Record& record : dump.records) {
    std::string& name = record.id.module;
    const std::vector<std::string_view> found = pattern.find(name);
    if (found.size() < 2) continue;
    const auto rank = number(found[1]);
    if (!rank || *rank >= max_rank)
      throw Error("{}: '{}' says rank {}; expected a number below {}", rule.source, name, found[1], max_rank);
    record.rank = static_cast<int>(*rank);
    name.erase(begin_in(name, found[0]), found[0].size());
    dump.world_size = std::max(dump.world_size, record.rank + 1);
  }
}

void set_mesh(Dump& dump, const std::vector<LayoutRules::MeshRule>& meshes) {
  if (dump.world_size == 1) {
    for (const auto& rule : meshes) {
      if (!rule.rank.empty() && dump.world_size == 1) ranks_from_names(dump, rule);
    }
  }
  if (dump.world_size == 1 || !dump.mesh.dims.empty()) return;
  const auto fits = [&](const auto& rule) { return element_count(rule.mesh.shape) == dump.world_size; };
  const auto rule = std::ranges::find_if(meshes, fits);
  if (rule == meshes.end())
    throw Error(
        "{}: has {} ranks and does not say how they are arranged; expected a [[mesh]] of {} ranks in the "
        "rules file",
        dump.path.string(), dump.world_size, dump.world_size);
  dump.mesh = rule->mesh;
  for (Record& record : dump.records) record.mesh_coordinate = unravel(record.rank, dump.mesh.shape);
}

std::size_t axis_of(const Mesh& mesh, const std::string& axis, const std::string& source) {
  const auto found = std::ranges::find(mesh.dims, axis);
  if (found == mesh.dims.end())
    throw Error("{}: the mesh has no axis '{}'; expected one of {}", source, axis,
                fmt::join(mesh.dims, ", "));
  return static_cast<std::size_t>(found - mesh.dims.begin());
}

std::int64_t global_number(const LayoutRules::Renumber& rule, std::int64_t local, std::int64_t chunk,
                           std::int64_t coordinate, std::int64_t axis_size) {
  const std::int64_t block = chunk * axis_size + coordinate;
  if (!rule.starts.empty()) {
    if (block >= static_cast<std::int64_t>(rule.starts.size()))
      throw Error("{}: has {} starts; chunk {} of {}={} needs number {}", rule.source, rule.starts.size(),
                  chunk, rule.axis, coordinate, block + 1);
    return rule.starts[static_cast<std::size_t>(block)] + local;
  }
  return rule.per > 0 ? block * rule.per + local : local * axis_size + coordinate;
}

void renumber(Dump& dump, const LayoutRules::Renumber& rule) {
  const std::size_t axis = axis_of(dump.mesh, rule.axis, rule.source);
  const std::int64_t size = dump.mesh.shape[axis];
  const Pattern pattern(rule.pattern);
  for (Record& record : dump.records) {
    if (record.mesh_coordinate.size() != dump.mesh.dims.size()) continue;
    const std::int64_t coordinate = record.mesh_coordinate[axis];
    const std::string name = record.id.module;
    const std::vector<std::string_view> found = pattern.find(name);
    if (found.empty()) continue;
    if (rule.micro_batch) {
      if (record.id.micro_batch >= 0)
        record.id.micro_batch = global_number(rule, record.id.micro_batch, 0, coordinate, size);
      rule.used = true;
      continue;
    }
    const auto group = [&](std::size_t i) {
      const auto value = number(found[i]);
      if (!value || *value >= max_rank)
        throw Error("{}: group {} of the match in '{}' is '{}'; expected a number below {}", rule.source, i,
                    name, found[i], max_rank);
      return *value;
    };
    const std::size_t last = found.size() - 1;
    const std::string made =
        std::to_string(global_number(rule, group(last), last > 1 ? group(1) : 0, coordinate, size));
    std::string replaced(found[0]);
    if (rule.to.empty()) {
      replaced.replace(begin_in(found[0], found[last]), found[last].size(), made);
    } else {
      replaced = rule.to;
      if (const std::size_t at = replaced.find("$n"); at != std::string::npos) replaced.replace(at, 2, made);
    }
    record.id.module.replace(begin_in(name, found[0]), found[0].size(), replaced);
    rule.used = true;
  }
}

}  // namespace

std::vector<LayoutRules::Token> parse_dims(const std::string& text) {
  using Token = LayoutRules::Token;
  std::vector<Token> tokens;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(' ', at)) != std::string::npos) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end;
    const auto wrong = [&](const char* what) {
      return Error(
          "dims \"{}\": '{}' {}; expected words like h, h[tp], s[cp:zigzag,tp], t[ep:rows], [dp:partial]",
          text, word, what);
    };
    const std::size_t open = word.find('[');
    Token token{word.substr(0, open), {}};
    if (open != std::string::npos) {
      if (word.back() != ']') throw wrong("does not end with ]");
      std::string inside = word.substr(open + 1, word.size() - open - 2);
      for (std::size_t comma = 0; comma != std::string::npos; inside.erase(0, comma + 1)) {
        comma = inside.find(',');
        const std::string axis = inside.substr(0, comma);
        const std::size_t colon = axis.find(':');
        const std::string how = colon == std::string::npos ? "" : axis.substr(colon + 1);
        token.axes.push_back({axis.substr(0, colon), how == "zigzag"    ? Token::How::zigzag
                                                     : how == "rows"    ? Token::How::rows
                                                     : how == "partial" ? Token::How::partial
                                                                        : Token::How::blocks});
        const bool known = colon == std::string::npos || token.axes.back().how != Token::How::blocks;
        if (!known || token.axes.back().axis.empty()) throw wrong("names no axis that can be read");
        const bool is_sum = token.axes.back().how == Token::How::partial;
        if (is_sum != token.name.empty()) throw wrong(is_sum ? "is a sum, which has no name" : "has no name");
        if (comma == std::string::npos) break;
      }
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::vector<std::string> LayoutRules::unused() const {
  std::vector<std::string> sources;
  for (const Renumber& rule : renumbers) {
    if (!rule.used) sources.push_back(rule.source + " ('" + rule.pattern + "')");
  }
  for (const Layout& rule : layouts) {
    if (!rule.used) sources.push_back(rule.source + " ('" + rule.match + "')");
  }
  return sources;
}

void cut_by_layout(Dump& dump, const LayoutRules& rules) {
  if (rules.empty()) return;
  set_mesh(dump, rules.meshes);
  if (dump.world_size == 1) return;
  for (const LayoutRules::Renumber& rule : rules.renumbers) renumber(dump, rule);
  cut_by_rules(dump, rules.layouts);
}

}  // namespace assay
