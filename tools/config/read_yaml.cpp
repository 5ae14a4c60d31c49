#include <fmt/format.h>
#include <yaml.h>

#include <map>
#include <set>

#include "assay/config/readers.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
// Anchors of lists that are empty in the end make no entry.
constexpr std::size_t most_visits = 10 * most_entries;

// A document: nodes by their numbers, children before the end of their parents. An alias is the number of
// what it names.
struct Node {
  enum class Kind : std::uint8_t { scalar, list, mapping } kind = Kind::scalar;
  std::string text = {};
  bool quoted = false;
  std::size_t line = 0;
  std::vector<std::size_t> items = {};  ///< of a mapping: key, value, key, value, ..
};

class Events {
 public:
  Events(std::string_view text, const std::string& where) : where_(where) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Events() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  const yaml_event_t& next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) == 0)
      throw Error("{}:{}: {}; expected YAML", where_, parser_.problem_mark.line + 1,
                  parser_.problem == nullptr ? "cannot be read" : parser_.problem);
    return event_;
  }

 private:
  const std::string& where_;
  yaml_parser_t parser_ = {};
  yaml_event_t event_ = {};
};

class Document {
 public:
  Document(std::string_view text, const std::string& where) : where_(where), events_(text, where) { read(); }

  std::vector<Entry> entries() {
    std::vector<Entry> all;
    if (root_ != nowhere) add(root_, "", 0, all);
    return all;
  }

 private:
  void read() {
    std::size_t documents = 0;
    for (;;) {
      const yaml_event_t& e = events_.next();
      const std::size_t line = e.start_mark.line + 1;
      switch (e.type) {
        case YAML_STREAM_END_EVENT:
          return;
        case YAML_DOCUMENT_START_EVENT:
          if (++documents > 1) throw Error("{}:{}: a second YAML document; expected one", where_, line);
          break;
        case YAML_ALIAS_EVENT:
          put(named(text_of(e.data.alias.anchor), line), line);
          break;
        case YAML_SCALAR_EVENT: {
          const auto& s = e.data.scalar;
          const std::size_t node = make(Node::Kind::scalar, line);
          nodes_[node].text.assign(reinterpret_cast<const char*>(s.value), s.length);
          nodes_[node].quoted = s.style != YAML_PLAIN_SCALAR_STYLE;
          put(node, line);
          if (s.anchor != nullptr) anchors_[text_of(s.anchor)] = node;
          break;
        }
        case YAML_SEQUENCE_START_EVENT:
          open(Node::Kind::list, e.data.sequence_start.anchor, line);
          break;
        case YAML_MAPPING_START_EVENT:
          open(Node::Kind::mapping, e.data.mapping_start.anchor, line);
          break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
          close(line);
          break;
        default:
          break;
      }
    }
  }

  static std::string text_of(const yaml_char_t* text) { return reinterpret_cast<const char*>(text); }

  std::size_t make(Node::Kind kind, std::size_t line) {
    if (nodes_.size() == most_entries) throw Error("{}: more than {} values", where_, most_entries);
    nodes_.push_back({.kind = kind, .line = line});
    return nodes_.size() - 1;
  }
  void open(Node::Kind kind, const yaml_char_t* anchor, std::size_t line) {
    if (open_.size() == most_depth) throw Error("{}:{}: nested deeper than {}", where_, line, most_depth);
    const std::size_t node = make(kind, line);
    put(node, line);
    open_.push_back({node, anchor == nullptr ? "" : text_of(anchor)});
  }
  // What it is called is known from here on: it cannot hold itself.
  void close(std::size_t line) {
    const auto [node, anchor] = open_.back();
    open_.pop_back();
    if (nodes_[node].kind == Node::Kind::mapping) check_keys(nodes_[node], line);
    if (!anchor.empty()) anchors_[anchor] = node;
  }
  void put(std::size_t node, std::size_t) {
    if (open_.empty())
      root_ = node;
    else
      nodes_[open_.back().first].items.push_back(node);
  }
  std::size_t named(const std::string& anchor, std::size_t line) const {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      throw Error("{}:{}: *{} stands for nothing before it, or for what it stands in; expected an anchor &{}",
                  where_, line, anchor, anchor);
    return found->second;
  }
  void check_keys(const Node& mapping, std::size_t) const {
    std::map<std::string_view, std::size_t> seen;
    for (std::size_t k = 0; k < mapping.items.size(); k += 2) {
      const Node& key = nodes_[mapping.items[k]];
      if (key.kind != Node::Kind::scalar) throw Error("{}:{}: a key is no text", where_, key.line);
      const auto [at, is_new] = seen.try_emplace(key.text, key.line);
      if (!is_new)
        throw Error("{}:{}: '{}' stands twice, first in line {}; expected one of them", where_, key.line,
                    key.text, at->second);
    }
  }

  void add(std::size_t number, const std::string& path, std::size_t depth, std::vector<Entry>& all) {
    if (depth > most_depth) throw Error("{}: nested deeper than {}", where_, most_depth);
    if (++visited_ > most_visits)
      throw Error("{}: more than {} values, with its anchors", where_, most_entries);
    const Node& node = nodes_[number];
    if (node.kind == Node::Kind::list) {
      for (std::size_t k = 0; k < node.items.size(); ++k)
        add(node.items[k], fmt::format("{}[{}]", path, k), depth + 1, all);
    } else if (node.kind == Node::Kind::mapping) {
      for (const auto& [key, value] : members_of(node, depth))
        add(value, path.empty() ? std::string(key) : fmt::format("{}.{}", path, key), depth + 1, all);
    } else {
      if (all.size() == most_entries)
        throw Error("{}: more than {} values, with its anchors", where_, most_entries);
      all.push_back({path, node.quoted ? Value::of(node.text) : parse_value(node.text),
                     fmt::format("{}:{}", where_, node.line)});
    }
  }
  // With those that << takes from another mapping, where they do not stand in this one.
  std::vector<std::pair<std::string_view, std::size_t>> members_of(const Node& mapping,
                                                                   std::size_t depth) const {
    if (depth > most_depth) throw Error("{}: nested deeper than {}", where_, most_depth);
    std::vector<std::pair<std::string_view, std::size_t>> members, taken;
    for (std::size_t k = 0; k < mapping.items.size(); k += 2) {
      const Node& key = nodes_[mapping.items[k]];
      const Node& value = nodes_[mapping.items[k + 1]];
      if (key.text == "<<" && !key.quoted && value.kind == Node::Kind::mapping)
        taken = members_of(value, depth + 1);
      else
        members.emplace_back(key.text, mapping.items[k + 1]);
    }
    std::set<std::string_view> own;
    for (const auto& [key, value] : members) own.insert(key);
    for (const auto& member : taken) {
      if (!own.contains(member.first)) members.push_back(member);
    }
    return members;
  }

  const std::string& where_;
  Events events_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::size_t, std::string>> open_;  ///< with their anchors
  std::map<std::string, std::size_t, std::less<>> anchors_;
  std::size_t root_ = nowhere, visited_ = 0;
};

}  // namespace

std::vector<Entry> read_yaml(std::string_view text, const std::string& where) {
  return Document(text, where).entries();
}

}  // namespace assay::config
