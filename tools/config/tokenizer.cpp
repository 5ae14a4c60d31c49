#include "assay/config/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "assay/compare/result/printable.h"
#include "assay/config/readers.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

constexpr std::size_t most_shown = 3;

void put(Tokenizer& t, const std::string& token, std::int64_t id, const std::string& where) {
  if (id < 0)
    throw Error("{}: the token '{}' has the id {}; expected 0 or more", where, printable(token), id);
  const auto [at, is_new] = t.ids.try_emplace(token, id);
  if (!is_new && at->second != id)
    throw Error("{}: the token '{}' has the id {}, and {} in another place; expected one", where,
                printable(token), id, at->second);
}

// {"<s>": 1}, or Unigram's [["<s>", 0.0], ..], where the place is the id.
void add_vocabulary(Tokenizer& t, const Json& vocabulary, const std::string& where) {
  if (vocabulary.is_array()) {
    std::int64_t id = 0;
    for (const Json& item : vocabulary.array(where)) {
      const Json::Array& pair = item.array(where);
      if (pair.empty())
        throw Error("{}: an empty entry of the vocabulary; expected a token and its score", where);
      put(t, pair.front().string(where), id++, where);
    }
    return;
  }
  for (const auto& [token, id] : vocabulary.object(where))
    put(t, token, id.integer(where + ": " + token), where);
}

// "a b", or in newer files ["a", "b"].
void add_merge_list(Tokenizer& t, const Json& merges, const std::string& where) {
  for (const Json& merge : merges.array(where)) {
    if (merge.is_string()) {
      t.merges.push_back(merge.string(where));
      continue;
    }
    const Json::Array& pair = merge.array(where);
    if (pair.size() != 2) throw Error("{}: a merge of {} parts; expected 2", where, pair.size());
    t.merges.push_back(pair[0].string(where) + " " + pair[1].string(where));
  }
}

void add_tokenizer_json(Tokenizer& t, const Json& json, const std::string& where) {
  const Json& model = json.at("model", where);
  if (const Json* vocabulary = model.find("vocab")) add_vocabulary(t, *vocabulary, where);
  if (const Json* merges = model.find("merges")) add_merge_list(t, *merges, where);
  if (const Json* added = json.find("added_tokens"); added != nullptr && !added->is_null()) {
    for (const Json& token : added->array(where))
      put(t, token.at("content", where).string(where), token.at("id", where).integer(where), where);
  }
  for (const char* part :
       {"normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"}) {
    if (const Json* value = json.find(part)) t.settings[part] = Value::of(value->text());
  }
  for (const char* part :
       {"type", "dropout", "unk_token", "byte_fallback", "ignore_merges", "continuing_subword_prefix"}) {
    if (const Json* value = model.find(part))
      t.settings[std::string("model.") + part] = Value::of(value->text());
  }
  t.file = where;
}

// A token is a text, or an object with it as its content.
const std::string* token_of(const Json& value) {
  if (value.is_string()) return &value.string("");
  const Json* content = value.find("content");
  return content != nullptr && content->is_string() ? &content->string("") : nullptr;
}

void add_settings(Tokenizer& t, const Json& json, const std::string& where) {
  for (const auto& [key, value] : json.object(where)) {
    if (key == "added_tokens_decoder") {
      for (const auto& [id, token] : value.object(where)) {
        const Value number = parse_value(id);
        if (number.kind != Value::Kind::number)
          throw Error("{}: added_tokens_decoder has the id '{}'; expected a whole number", where,
                      printable(id));
        put(t, token.at("content", where).string(where), static_cast<std::int64_t>(number.number), where);
      }
    } else if (key.ends_with("_token") && token_of(value) != nullptr) {
      t.special[key] = *token_of(value);
    } else if (key.starts_with("add_") || key == "padding_side" || key == "truncation_side" ||
               key == "do_lower_case" || key == "legacy" || key == "model_max_length" ||
               key == "chat_template") {
      t.settings[key] = Value::of(value.text());
    }
  }
}

// "'a' 5 | 6, 'b' 6 | 5 and 12 more"
std::string some(const std::vector<std::string>& texts) {
  std::string all;
  for (std::size_t k = 0; k < std::min(texts.size(), most_shown); ++k) all += (k == 0 ? "" : ", ") + texts[k];
  if (texts.size() > most_shown)
    all += fmt::format(" and {} more", grouped(static_cast<std::int64_t>(texts.size() - most_shown)));
  return all;
}

std::string count(std::size_t n) {
  return grouped(static_cast<std::int64_t>(n));
}

class TokenizerComparer {
 public:
  TokenizerComparer(const Tokenizer& a, const Tokenizer& b) : a_(a), b_(b) {}

  TokenizerComparison run() {
    compare_ids();
    compare_merges();
    std::set<std::string> names;
    for (const auto* side : {&a_.special, &b_.special})
      for (const auto& [name, token] : *side) names.insert(name);
    for (const std::string& name : names) compare_special(name);
    names.clear();
    for (const auto* side : {&a_.settings, &b_.settings})
      for (const auto& [name, value] : *side) names.insert(name);
    for (const std::string& name : names) compare_setting(name);
    return std::move(result_);
  }

 private:
  void compare_ids() {
    if (a_.ids.empty() || b_.ids.empty()) {  // a side has no table, but the bits of one
      if (a_.ids.size() != b_.ids.size())
        add("tokenizer.ids", count(a_.ids.size()) + " tokens", count(b_.ids.size()) + " tokens",
            "text may become other tokens", true);
      return;
    }
    std::vector<std::string> other, only_a, only_b;
    for (const auto& [token, id] : a_.ids) {
      const auto found = b_.ids.find(token);
      if (found == b_.ids.end())
        only_a.push_back(fmt::format("'{}' {}", token, id));
      else if (found->second != id)
        other.push_back(fmt::format("'{}' {} | {}", token, id, found->second));
    }
    for (const auto& [token, id] : b_.ids) {
      if (!a_.ids.contains(token)) only_b.push_back(fmt::format("'{}' {}", token, id));
    }
    std::string does;
    const auto say = [&](const char* what, const std::vector<std::string>& texts) {
      if (!texts.empty())
        does +=
            fmt::format("{}{}: {} ({})", does.empty() ? "" : "; ", what, count(texts.size()), some(texts));
    };
    say("tokens with other ids", other);
    say("only in A", only_a);
    say("only in B", only_b);
    add("tokenizer.ids", count(a_.ids.size()) + " tokens", count(b_.ids.size()) + " tokens", does);
  }

  void compare_merges() {
    if (a_.merges.empty() && b_.merges.empty()) return;
    const auto [at_a, at_b] = std::ranges::mismatch(a_.merges, b_.merges);
    std::string does;
    if (at_a != a_.merges.end() || at_b != b_.merges.end())
      does = fmt::format("text is cut otherwise; first at merge {}: {} | {}", at_a - a_.merges.begin(),
                         at_a == a_.merges.end() ? "none" : "'" + *at_a + "'",
                         at_b == b_.merges.end() ? "none" : "'" + *at_b + "'");
    add("tokenizer.merges", count(a_.merges.size()), count(b_.merges.size()), does);
  }

  static std::string with_id(const Tokenizer& t, const std::string& name) {
    const auto token = t.special.find(name);
    if (token == t.special.end()) return "none";
    const auto id = t.ids.find(token->second);
    return fmt::format("'{}'{}", token->second, id == t.ids.end() ? "" : fmt::format(" ({})", id->second));
  }
  void compare_special(const std::string& name) {
    const std::string a = with_id(a_, name), b = with_id(b_, name);
    add("tokenizer." + name, a, b,
        a == b ? "" : "another token stands at these places: tokens, masks and the loss");
  }

  void compare_setting(const std::string& name) {
    const auto text = [&](const Tokenizer& t) {
      const auto found = t.settings.find(name);
      return found == t.settings.end() ? std::string("not stated") : found->second.text;
    };
    const std::string a = text(a_), b = text(b_);
    add("tokenizer." + name, a, b, a == b ? "" : "text may become other tokens",
        a_.settings.contains(name) != b_.settings.contains(name));
  }

  void add(std::string key, std::string a, std::string b, std::string does, bool one_sided = false) {
    if (does.empty())
      ++result_.equal;
    else
      result_.differences.push_back({std::move(key), std::move(a), std::move(b), std::move(does), one_sided});
  }

  const Tokenizer& a_;
  const Tokenizer& b_;
  TokenizerComparison result_;
};

}  // namespace

bool is_of_tokenizer(std::string_view name, const Json& json) {
  if (name == "special_tokens_map.json" || name == "tokenizer_config.json" || name == "added_tokens.json")
    return true;
  const Json* model = json.find("model");
  if (model != nullptr && model->find("vocab") != nullptr) return true;
  if (!json.is_object() || json.object("").empty()) return false;
  const auto is_id = [](const Json::Member& m) {
    return std::holds_alternative<std::int64_t>(m.second.value_);
  };
  const bool is_called_so =
      name.find("vocab") != std::string_view::npos || name.find("token") != std::string_view::npos;
  return name == "vocab.json" || (is_called_so && std::ranges::all_of(json.object(""), is_id));
}

void add_to_tokenizer(Tokenizer& t, std::string_view name, const Json& json, const std::string& where) {
  if (json.find("model") != nullptr && json.find("model")->is_object()) {
    add_tokenizer_json(t, json, where);
  } else if (name == "special_tokens_map.json" || name == "tokenizer_config.json") {
    add_settings(t, json, where);
  } else {
    add_vocabulary(t, json, where);
    if (t.file.empty() || name != "added_tokens.json") t.file = where;
  }
}

void add_merges(Tokenizer& t, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) t.merges.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

TokenizerComparison compare_tokenizers(const Tokenizer& a, const Tokenizer& b) {
  return TokenizerComparer(a, b).run();
}

}  // namespace assay::config
