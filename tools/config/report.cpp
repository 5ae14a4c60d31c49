#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "assay/compare/result/printable.h"
#include "assay/config/compare.h"

namespace assay::config {
namespace {

// What one side alone states is a list for the eye until --all asks for it.
constexpr std::size_t most_singles = 8;
// A chat template is a page.
constexpr std::size_t most_characters = 60;

struct Group {
  Effect effect;
  std::string_view title, json;
};
constexpr Group groups[] = {{Effect::numbers, "changes the numbers", "numbers"},
                            {Effect::unknown, "not known", "not_known"},
                            {Effect::order, "changes only the order of sums", "order_of_sums"},
                            {Effect::nothing, "changes nothing numerically", "nothing"}};

std::string value_text(const std::string& value) {
  const std::string text = printable(value);
  if (text.size() <= most_characters) return text;
  std::size_t end = most_characters;  // not inside of a character
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "..";
}

std::string singles(const std::vector<Single>& all, const std::string& side, bool every) {
  if (all.empty()) return "";
  std::string text = fmt::format("said by {} alone: {}\n ", printable(side), all.size());
  const std::size_t shown = every ? all.size() : std::min(all.size(), most_singles);
  for (std::size_t k = 0; k < shown; ++k)
    text += fmt::format(" {} = {}{}", printable(all[k].key), value_text(all[k].stated.value),
                        k + 1 < shown ? "," : "");
  return text + (shown < all.size() ? fmt::format(" and {} more (--all)\n", all.size() - shown) : "\n");
}

}  // namespace

std::string line_of(const Row& r) {
  return fmt::format("{} ({}) | {} ({})  {}{}", value_text(r.a.value), printable(r.a.place),
                     value_text(r.b.value), printable(r.b.place), r.accepted ? "accepted: " : "",
                     printable(r.does));
}

std::string counts_text(const Comparison& c) {
  std::string text = fmt::format(
      "{} change the numbers, {} are not known, {} change only the order of sums, {} change nothing",
      c.count(Effect::numbers), c.count(Effect::unknown), c.count(Effect::order, false),
      c.count(Effect::nothing));
  const auto accepted = std::ranges::count(c.rows, true, &Row::accepted);
  if (accepted > 0) text += fmt::format(", {} are accepted", accepted);
  return text + fmt::format("; {} are equal, {} are said by one side alone", c.equal,
                            c.only_a.size() + c.only_b.size());
}

std::string to_text(const Comparison& c, bool all) {
  std::string text =
      fmt::format("A  {}: {}\nB  {}: {}\n", printable(c.a), c.kind_a, printable(c.b), c.kind_b);
  std::size_t width = 0;
  for (const Row& r : c.rows) width = std::max(width, printable(r.key).size());
  for (const Group& g : groups) {
    bool first = true;
    for (const Row& r : c.rows) {
      if (r.effect != g.effect) continue;
      if (first) text += fmt::format("{}:\n", g.title);
      first = false;
      text += fmt::format("  {:<{}}  {}\n", printable(r.key), std::min<std::size_t>(width, 40), line_of(r));
    }
  }
  text += singles(c.only_a, c.a, all) + singles(c.only_b, c.b, all);
  if (!c.passed_over.empty())
    text += fmt::format("not read: {}\n", printable(fmt::format("{}", fmt::join(c.passed_over, ", "))));
  return text + fmt::format("{}  {}\n", c.differs() ? "DIFFERS" : "AGREES", counts_text(c));
}

std::string to_json(const Comparison& c) {
  using Json = nlohmann::ordered_json;
  const auto stated = [](const Stated& s) {
    return Json{{"value", printable(s.value)}, {"place", printable(s.place)}};
  };
  Json j = {{"agrees", !c.differs()}, {"a", printable(c.a)}, {"b", printable(c.b)},  {"kind_a", c.kind_a},
            {"kind_b", c.kind_b},     {"equal", c.equal},    {"rows", Json::array()}};
  for (const Row& r : c.rows) {
    const auto group = std::ranges::find(groups, r.effect, &Group::effect);
    j["rows"].push_back({{"key", printable(r.key)},
                         {"changes", group->json},
                         {"a", stated(r.a)},
                         {"b", stated(r.b)},
                         {"does", printable(r.does)},
                         {"accepted", r.accepted}});
  }
  for (const auto& [name, singles] : {std::pair{"only_a", &c.only_a}, {"only_b", &c.only_b}}) {
    j[name] = Json::array();
    for (const Single& s : *singles)
      j[name].push_back({{"key", printable(s.key)},
                         {"value", printable(s.stated.value)},
                         {"place", printable(s.stated.place)}});
  }
  j["defaults"] = Json::object();
  for (const FrameworkRow& f : frameworks) j["defaults"][std::string(f.name)] = f.defaults;
  j["not_read"] = Json::array();
  for (const std::string& file : c.passed_over) j["not_read"].push_back(printable(file));
  return j.dump(1) + "\n";
}

}  // namespace assay::config
