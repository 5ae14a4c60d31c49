#include "assay/config/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "assay/config/resolve.h"
#include "assay/dumps/record/glob.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

Stated stated(const Resolved& r) {
  if (!r.is_torn()) return {r.best()->value.text, r.best()->place};
  std::vector<std::string> all;
  for (const Resolved::Place& p : r.stated) all.push_back(fmt::format("{} in {}", p.value.text, p.place));
  return {fmt::format("{}", fmt::join(all, " but ")), "its files do not agree"};
}

// The report's head has the folders.
std::string name_of(const std::string& file) {
  return std::filesystem::path(file).filename().string();
}

class Comparer {
 public:
  Comparer(const Side& a, const Side& b) : a_(a), b_(b), of_a_(a), of_b_(b) {}

  Comparison run() {
    result_.a = a_.path;
    result_.b = b_.path;
    result_.kind_a = a_.text();
    result_.kind_b = b_.text();
    for (const Key& key : keys()) compare(key);
    for (std::size_t f = 0; f < frameworks.size(); ++f) compare_unknown(static_cast<Framework>(f));
    compare_tokens();
    compare_batches();
    for (const Side* side : {&a_, &b_})
      std::ranges::copy(side->passed_over, std::back_inserter(result_.passed_over));
    std::ranges::stable_sort(result_.rows, {}, &Row::effect);
    if (result_.rows.empty() && result_.equal == 0)
      throw Error(
          "{} and {}: have nothing to compare; expected configurations, tokenizers or batches of both",
          a_.path, b_.path);
    return std::move(result_);
  }

 private:
  void compare(const Key& key) {
    const Resolved a = of_a_(key), b = of_b_(key);
    if (a.best() == nullptr && b.best() == nullptr) return;
    if (a.best() == nullptr || b.best() == nullptr) {
      one_sided(key, a, b);
      return;
    }
    const bool torn = a.is_torn() || b.is_torn();
    const bool open = a.best()->value.kind == Value::Kind::open || b.best()->value.kind == Value::Kind::open;
    if (!torn && same(a.best()->value, b.best()->value))
      ++result_.equal;
    else if (!torn && open)
      add(key, Effect::unknown, stated(a), stated(b), "decided when it runs; " + std::string(key.does));
    else
      add(key, key.effect, stated(a), stated(b), std::string(key.does));
  }

  // Of one framework in both, saying nothing is saying its default, whatever that is.
  void one_sided(const Key& key, const Resolved& a, const Resolved& b) {
    const Resolved& has = a.best() != nullptr ? a : b;
    if (!has.is_stated()) return;
    const bool is_a = &has == &a;
    Resolver& other = is_a ? of_b_ : of_a_;
    const Side& silent = is_a ? b_ : a_;
    const bool same_words = std::ranges::any_of(has.stated, [&](const Resolved::Place& p) {
      return other.has(p.framework) && !is_complete(p.framework);
    });
    const Stated nothing = {"not stated", silent.path};
    if (has.is_torn()) {
      add(key, key.effect, is_a ? stated(has) : nothing, is_a ? nothing : stated(has), std::string(key.does));
      return;
    }
    if (!same_words) {
      (is_a ? result_.only_a : result_.only_b).push_back({std::string(key.name), stated(has)});
      return;
    }
    add(key, key.effect == Effect::numbers ? Effect::unknown : key.effect, is_a ? stated(has) : nothing,
        is_a ? nothing : stated(has),
        "where nobody states it, it depends on the model; " + std::string(key.does));
  }

  // A list of all arguments against a script, which states some: what the script leaves out is not known.
  bool is_complete(Framework f) const {
    for (const Side* side : {&a_, &b_}) {
      for (const Source& s : side->sources) {
        if (s.framework == f && s.complete) return true;
      }
    }
    return false;
  }

  void add(const Key& key, Effect effect, Stated a, Stated b, std::string does) {
    result_.rows.push_back({std::string(key.name), effect, std::move(a), std::move(b), std::move(does)});
  }

  // Entries of a framework that no key asks for.
  static std::map<std::string, const Entry*> rest_of(const Side& side, const Resolver& resolver,
                                                     Framework f) {
    std::map<std::string, const Entry*> rest;
    for (const Source& s : side.sources) {
      if (s.framework != f) continue;
      for (const Entry& e : s.entries) {
        if (!resolver.is_used(s, e.path)) rest.emplace(e.path, &e);
      }
    }
    return rest;
  }

  void compare_unknown(Framework f) {
    auto a = rest_of(a_, of_a_, f), b = rest_of(b_, of_b_, f);
    const bool both = of_a_.has(f) && of_b_.has(f), all_there = both && !is_complete(f);
    for (const auto& [path, entry] : a) {
      const auto other = b.find(path);
      if (other != b.end())
        compare_unknown(f, path, *entry, *other->second);
      else
        one_sided(f, *entry, all_there, true);
    }
    for (const auto& [path, entry] : b) {
      if (!a.contains(path)) one_sided(f, *entry, all_there, false);
    }
  }
  void compare_unknown(Framework f, const std::string& path, const Entry& a, const Entry& b) {
    if (same(a.value, b.value)) {
      ++result_.equal;
      return;
    }
    add_unknown(f, path, {text_of(a.value), a.place}, {text_of(b.value), b.place});
  }
  void one_sided(Framework f, const Entry& e, bool all_there, bool is_a) {
    if (e.value.is_null()) return;  // says nothing
    const Stated here = {text_of(e.value), e.place}, nothing = {"not stated", is_a ? b_.path : a_.path};
    if (all_there)
      add_unknown(f, e.path, is_a ? here : nothing, is_a ? nothing : here);
    else if (!is_without_effect(f, e.path))
      (is_a ? result_.only_a : result_.only_b).push_back({e.path, here});
  }
  void add_unknown(Framework f, const std::string& path, Stated a, Stated b) {
    const bool nothing = is_without_effect(f, path);
    result_.rows.push_back({path, nothing ? Effect::nothing : Effect::unknown, std::move(a), std::move(b),
                            nothing ? "what is saved, printed, measured or waited for"
                                    : "what it does to the numbers is not known here"});
  }
  static std::string text_of(const Value& v) { return v.is_null() ? "null" : v.text; }

  void compare_tokens() {
    if (a_.tokenizer.has_value() != b_.tokenizer.has_value()) {
      const Side& has = a_.tokenizer ? a_ : b_;
      (a_.tokenizer ? result_.only_a : result_.only_b)
          .push_back({"tokenizer",
                      {fmt::format("{} tokens", has.tokenizer->ids.size()), name_of(has.tokenizer->file)}});
      return;
    }
    if (!a_.tokenizer) return;
    TokenizerComparison c = compare_tokenizers(*a_.tokenizer, *b_.tokenizer);
    result_.equal += c.equal;
    for (TokenizerDifference& d : c.differences)
      result_.rows.push_back({d.key,
                              d.one_sided ? Effect::unknown : Effect::numbers,
                              {d.a, name_of(a_.tokenizer->file)},
                              {d.b, name_of(b_.tokenizer->file)},
                              d.does});
  }

  void compare_batches() {
    if (a_.batches.has_value() != b_.batches.has_value()) {
      const Batches& has = a_.batches ? *a_.batches : *b_.batches;
      (a_.batches ? result_.only_a : result_.only_b).push_back({"data", {to_string(has), name_of(has.file)}});
      return;
    }
    if (!a_.batches) return;
    std::string does = difference_of(*a_.batches, *b_.batches);
    if (does.empty())
      ++result_.equal;
    else
      result_.rows.push_back({"data",
                              Effect::numbers,
                              {to_string(*a_.batches), name_of(a_.batches->file)},
                              {to_string(*b_.batches), name_of(b_.batches->file)},
                              std::move(does)});
  }

  const Side& a_;
  const Side& b_;
  Resolver of_a_, of_b_;
  Comparison result_;
};

}  // namespace

std::size_t Comparison::count(Effect effect, bool accepted) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      rows, [&](const Row& r) { return r.effect == effect && r.accepted == accepted; }));
}

bool Comparison::differs() const {
  return count(Effect::numbers) + count(Effect::unknown) > 0;
}

Comparison compare(const Side& a, const Side& b, const std::vector<std::string>& accepted) {
  Comparison result = Comparer(a, b).run();
  for (const std::string& pattern : accepted) {
    bool any = false;
    for (Row& row : result.rows) {
      if (!glob_match(pattern, row.key)) continue;
      any = true;
      row.accepted = true;
    }
    if (!any)
      throw Error("'{}' is accepted and does not differ; expected one of {}", pattern,
                  result.rows.empty() ? "none: no key differs" : result.rows.front().key + ", ..");
  }
  return result;
}

}  // namespace assay::config
