#include "assay/compare/causes/values/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace assay {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789*") == std::string_view::npos;
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The module's own name, without the numbers of layers and experts: "q_a_proj" of
// "model.layers.0.self_attn.q_a_proj.weight".
std::string kind_of(const std::string& name) {
  const std::vector<std::string> parts = parts_of(name);
  std::string kind;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    if (!is_number(parts[i])) kind = parts[i];
  }
  return kind;
}

bool is_of_experts(const std::string& name) {
  return name.find(".experts.") != std::string::npos;
}

}  // namespace

std::vector<ParameterGroup> parameter_groups(const std::vector<NamedShape>& all) {
  std::vector<ParameterGroup> groups;
  const auto add = [&](std::string text, const std::function<bool(const NamedShape&)>& has) {
    ParameterGroup g{std::move(text), {}};
    for (const NamedShape& p : all) {
      if (has(p)) g.members.insert(p.name);
    }
    const bool is_new =
        std::ranges::none_of(groups, [&](const ParameterGroup& other) { return other.members == g.members; });
    if (g.members.size() > 1 && g.members.size() < all.size() && is_new) groups.push_back(std::move(g));
  };
  const auto contains = [](const char* part) {
    return [part](const NamedShape& p) { return p.name.find(part) != std::string::npos; };
  };
  add("the 1-D parameters", [](const NamedShape& p) { return p.shape.size() <= 1; });
  add("the matrices", [](const NamedShape& p) { return p.shape.size() > 1; });
  add("the experts", [](const NamedShape& p) { return is_of_experts(p.name); });
  add("the dense parameters", [](const NamedShape& p) { return !is_of_experts(p.name); });
  add("the shared experts", contains("shared_expert"));
  add("the embeddings and heads", [](const NamedShape& p) {
    return p.name.find("embed") != std::string::npos || p.name.find("head") != std::string::npos;
  });
  std::map<std::string, bool> kinds, layers;
  for (const NamedShape& p : all) {
    kinds[kind_of(p.name)] = true;
    const std::vector<std::string> parts = parts_of(p.name);
    std::string path;
    for (const std::string& part : parts) {
      path += part + ".";
      if (is_number(part) && part != "*") {
        layers[path] = true;
        break;
      }
    }
  }
  for (const auto& [kind, unused] : kinds)
    add("all " + kind, [&](const NamedShape& p) { return kind_of(p.name) == kind; });
  for (const auto& [path, unused] : layers)
    add("the parameters of " + path.substr(0, path.size() - 1),
        [&](const NamedShape& p) { return p.name.starts_with(path); });
  return groups;
}

std::string describe_parameters(const std::set<std::string>& some, const std::vector<NamedShape>& all) {
  if (some.size() == 1) return *some.begin();
  if (some.size() == all.size()) return fmt::format("all {} parameters", all.size());
  for (const ParameterGroup& g : parameter_groups(all)) {
    if (g.members == some) return fmt::format("{} ({} of {} parameters)", g.text, some.size(), all.size());
  }
  std::string list;
  constexpr std::size_t most = 3;
  std::size_t listed = 0;
  for (const std::string& name : some) {
    if (listed++ == most) break;
    list += (list.empty() ? "" : ", ") + name;
  }
  return fmt::format("{} of {} parameters: {}{}", some.size(), all.size(), list,
                     some.size() > most ? ", .." : "");
}

}  // namespace assay
