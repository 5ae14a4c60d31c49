#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "assay/compare/report/folds.h"

namespace assay {

std::string runs(const std::set<int>& numbers, std::size_t most) {
  std::string out;
  std::size_t count = 0;
  for (auto at = numbers.begin(); at != numbers.end(); ++count) {
    if (count == most) return "*";
    const int first = *at;
    int last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) ++last;
    if (!out.empty()) out += ",";
    out += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return out;
}

namespace {

constexpr std::size_t most_digits = 9;  // of a number that folds; longer ones are hashes and the like
constexpr std::size_t most_runs = 3;    // "0-3,7,9"

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// A text in which numbers may differ: text, number, text, .., text.
class Pattern {
 public:
  explicit Pattern(std::string_view text) : texts_(1) {
    while (!text.empty()) {
      const auto end = std::find_if(text.begin(), text.end(),
                                    [&](char c) { return is_digit(c) != is_digit(text.front()); });
      const std::string part(text.begin(), end);
      // A number with leading zeros has to be printed as it is.
      const bool folds =
          is_digit(part.front()) && part.size() <= most_digits && (part.size() == 1 || part.front() != '0');
      if (folds) {
        numbers_.push_back({std::stoi(part)});
        texts_.emplace_back();
      } else {
        texts_.back() += part;
      }
      text.remove_prefix(part.size());
    }
  }
  /// Equal for those that can be merged.
  const std::vector<std::string>& key() const { return texts_; }
  void merge(const Pattern& other) {
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      numbers_[i].insert(other.numbers_[i].begin(), other.numbers_[i].end());
  }
  std::string text() const {
    std::string out = texts_.front();
    for (std::size_t i = 0; i < numbers_.size(); ++i) out += runs(numbers_[i], most_runs) + texts_[i + 1];
    return out;
  }
  /// Of a module path: the number of its components.
  std::int64_t depth() const {
    std::int64_t dots = texts_.size() > 1 || !texts_.front().empty() ? 1 : 0;
    for (const std::string& text : texts_) dots += std::ranges::count(text, '.');
    return dots;
  }
  void go_up() {
    std::size_t at = texts_.size();
    while (at > 0 && texts_[at - 1].find('.') == std::string::npos) --at;
    if (at == 0) {
      *this = Pattern("");
      return;
    }
    texts_.resize(at);
    numbers_.resize(at - 1);
    texts_.back().resize(texts_.back().rfind('.'));
  }

 private:
  std::vector<std::string> texts_;
  std::vector<std::set<int>> numbers_;
};

struct Group {
  Pattern name;   // of the first
  Pattern above;  // its module, or what is above that, as far as the tree has been folded
  std::set<Phase> phases;
  Fold fold;
  bool has_one_name = true;  // but for numbers

  std::string text() const {
    if (has_one_name) return name.text();
    const std::string where = above.depth() == 0 ? "all over the model" : above.text();
    const bool has_one_phase = phases.size() == 1 && *phases.begin() != Phase::none;
    return where + (has_one_phase ? fmt::format(" ({})", assay::name(*phases.begin())) : "");
  }
};

// What stops a reader first. Failures of both kinds stand in one execution order.
int severity(Verdict v) {
  if (v == Verdict::replicas_differ) v = Verdict::failed;
  constexpr Verdict order[] = {Verdict::failed,         Verdict::undecided,        Verdict::unreadable,
                               Verdict::mistrusted,     Verdict::no_rule,          Verdict::not_comparable,
                               Verdict::missing_actual, Verdict::missing_reference};
  return static_cast<int>(std::ranges::find(order, v) - std::begin(order));
}

// Groups of one verdict and key are one, where the first of them stands.
class Groups {
 public:
  void add(Group g, const Pattern& by) {
    const auto [at, is_new] = index_.try_emplace({g.fold.verdict, by.key()}, list_.size());
    if (is_new) {
      list_.push_back(std::move(g));
      return;
    }
    Group& into = list_[at->second];
    if (into.name.key() == g.name.key())
      into.name.merge(g.name);
    else
      into.has_one_name = false;
    // Equal names may be divided into module and the rest in several ways.
    if (into.above.key() == g.above.key()) into.above.merge(g.above);
    into.phases.insert(g.phases.begin(), g.phases.end());
    into.fold.count += g.fold.count;
    into.fold.ratio = std::max(into.fold.ratio, g.fold.ratio);
    into.fold.required = std::max(into.fold.required, g.fold.required);
  }
  std::vector<Group> list() && { return std::move(list_); }

 private:
  std::vector<Group> list_;
  std::map<std::pair<Verdict, std::vector<std::string>>, std::size_t> index_;
};

// Folds by module, then one step up the tree at a time, the deepest first. Of the verdicts, the least severe
// that has several lines goes first.
class TreeFolder {
 public:
  explicit TreeFolder(std::vector<Group> groups) : groups_(std::move(groups)) {}
  std::vector<Group> fold(std::size_t most_lines) && {
    while (groups_.size() > most_lines && step()) {
    }
    return std::move(groups_);
  }

 private:
  bool step() {
    std::map<Verdict, std::int64_t> lines, deepest;
    std::optional<Verdict> last;
    for (const Group& g : groups_) {  // the most severe come first
      const Verdict v = g.fold.verdict;
      if (++lines[v] == 2) last = v;
      deepest[v] = std::max(deepest[v], g.above.depth());
    }
    if (!last) return false;
    const Verdict verdict = *last;
    const bool is_by_module = !by_module_.insert(verdict).second;
    Groups merged;
    for (Group& g : groups_) {
      if (is_by_module && g.fold.verdict == verdict && g.above.depth() == deepest[verdict]) g.above.go_up();
      const Pattern by = by_module_.contains(g.fold.verdict) ? g.above : g.name;
      merged.add(std::move(g), by);
    }
    groups_ = std::move(merged).list();
    return true;
  }

  std::vector<Group> groups_;
  std::set<Verdict> by_module_;
};

}  // namespace

std::vector<Fold> folds(const Report& report, std::size_t most_lines) {
  Groups by_name;
  for (const Finding& f : report.findings) {
    if (is_fine(f.verdict) || is_inherited(f)) continue;
    const double required = f.required > 0 ? f.required : 0;  // NaN: the rule is of another form
    const Pattern name(f.name);
    by_name.add({name, Pattern(f.id.module), {f.id.phase}, {"", f.verdict, 1, f.ratio, required, f.reason}},
                name);
  }
  std::vector<Group> groups = std::move(by_name).list();
  std::ranges::stable_sort(groups, {}, [](const Group& g) { return severity(g.fold.verdict); });
  std::vector<Fold> list;
  for (Group& g : TreeFolder(std::move(groups)).fold(most_lines)) {
    g.fold.name = g.text();
    list.push_back(std::move(g.fold));
  }
  return list;
}

}  // namespace assay
