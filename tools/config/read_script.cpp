#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "assay/config/readers.h"
#include "assay/config/words.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

// Options whose variable is not their name, and says the opposite (Megatron-LM, arguments.py at 000c4ac2).
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> opposites = {
    {{"disable_bias_linear", "add_bias_linear"},
     {"no_position_embedding", "add_position_embedding"},
     {"no_initialization", "perform_initialization"},
     {"no_overlap_p2p_communication", "overlap_p2p_comm"},
     {"disable_gloo_process_groups", "enable_gloo_process_groups"},
     {"disable_tp_comm_overlap_ag", "tp_comm_overlap_ag"},
     {"disable_tp_comm_overlap_rs", "tp_comm_overlap_rs"},
     {"bert_no_binary_head", "bert_binary_head"},
     {"no_rope_fusion", "apply_rope_fusion"}}};
// They begin with no_ and are what they are called.
constexpr std::array<std::string_view, 8> straight = {
    "no_save_optim", "no_save_rng",           "no_load_optim",    "no_load_rng",
    "no_rope_freq",  "no_persist_layer_norm", "no_data_sharding", "no_weight_decay_cond_type"};

bool is_option(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && word[2] >= 'A' && word[2] != '_';
}

class ScriptReader {
 public:
  explicit ScriptReader(const std::string& where) : where_(where) {}

  void read(std::string_view text, std::size_t line, int depth) {
    const std::vector<Word> words = words_of(text, line, variables_);
    bool exported = false, first = true;
    for (std::size_t k = 0; k < words.size(); ++k) {
      const Word& w = words[k];
      if (w.ends_command) {
        exported = false;
        first = true;
        continue;
      }
      if (w.text == "export") {
        exported = true;
        continue;
      }
      if (holds_options(w)) {  // GPT_ARGS="--num-layers 2 --bf16"
        const std::size_t from = w.quoted == std::string::npos ? 0 : w.quoted;
        if (depth < 4) read(std::string_view(w.text).substr(from), w.line, depth + 1);
      } else if (is_option(w.text)) {
        k = option(words, k);
      } else if (const std::string_view name = assigned_name(w.text); !name.empty()) {
        if (exported || (first && is_before_command(words, k))) assign(name, w);
      }
      first = first && !assigned_name(w.text).empty();
    }
  }

  Script result() && { return {std::move(options_.entries), std::move(environment_.entries)}; }

 private:
  static bool holds_options(const Word& w) {
    const std::size_t from = w.quoted == std::string::npos ? 0 : w.quoted;
    const std::string_view inside = std::string_view(w.text).substr(from);
    if (w.quoted == std::string::npos || inside.find_first_of(" \t\n") == std::string_view::npos)
      return false;
    return inside.find(" --") != std::string_view::npos || inside.find("\n--") != std::string_view::npos ||
           inside.starts_with("--");
  }
  // "NAME=1 python train.py": a variable for this command alone.
  static bool is_before_command(const std::vector<Word>& words, std::size_t k) {
    while (k < words.size() && !words[k].ends_command && !assigned_name(words[k].text).empty()) ++k;
    return k < words.size() && !words[k].ends_command;
  }

  std::size_t option(const std::vector<Word>& words, std::size_t k) {
    const Word& w = words[k];
    const std::size_t equals = w.text.find('=');
    std::string name = w.text.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::optional<std::string> value;
    bool open = w.open;
    if (equals != std::string::npos) value = w.text.substr(equals + 1);
    while (k + 1 < words.size() && !words[k + 1].ends_command && !is_option(words[k + 1].text)) {
      const Word& v = words[k + 1];
      if (!assigned_name(v.text).empty() && v.quoted != std::string::npos) break;
      if (v.text.ends_with(".py")) {  // what came before were the launcher's
        ++k;
        put(options_, variable_of(name, value, place(w.line)));
        return k;
      }
      value = value ? *value + " " + v.text : v.text;
      open = open || v.open;
      ++k;
    }
    Entry entry = variable_of(name, value, place(w.line));
    if (open && value) entry.value = Value::open(*value);
    put(options_, std::move(entry));
    return k;
  }

  void assign(std::string_view name, const Word& w) {
    const std::string text = w.text.substr(name.size() + 1);
    put(environment_, {std::string(name), w.open ? Value::open(text) : parse_value(text), place(w.line)});
  }

  // Of what stands twice the last one counts, as argparse and the shell have it.
  struct Listed {
    std::vector<Entry> entries;
    std::map<std::string, std::size_t, std::less<>> places;
  };
  void put(Listed& to, Entry entry) const {
    if (to.entries.size() == most_entries) throw Error("{}: more than {} options", where_, most_entries);
    const auto [at, is_new] = to.places.try_emplace(entry.path, to.entries.size());
    if (is_new)
      to.entries.push_back(std::move(entry));
    else
      to.entries[at->second] = std::move(entry);
  }
  std::string place(std::size_t line) const { return fmt::format("{}:{}", where_, line); }

  const std::string& where_;
  std::map<std::string, std::string, std::less<>> variables_;
  Listed options_, environment_;
};

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

// "  norm_epsilon ..... 1e-05", also behind a rank's "0: " or a logger's time; nothing else.
std::optional<std::pair<std::string_view, std::string_view>> printed(std::string_view line) {
  const std::size_t dots = line.find(" ... ");
  const std::size_t run = line.find(" ....");
  const std::size_t at = std::min(dots, run);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  std::size_t end = line.find_first_not_of('.', at + 1);
  if (end == std::string_view::npos || line[end] != ' ') return std::nullopt;
  const std::size_t begin = line.find_last_of(' ', at - 1);
  const std::string_view name = line.substr(begin == std::string_view::npos ? 0 : begin + 1, at - begin - 1);
  const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
  if (!is_name) return std::nullopt;
  return std::pair{name, trimmed(line.substr(end + 1))};
}

template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end), line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

Entry variable_of(std::string_view option, std::optional<std::string> value, std::string place) {
  std::string name(option);
  std::ranges::replace(name, '-', '_');
  const auto opposite =
      std::ranges::find(opposites, name, &std::pair<std::string_view, std::string_view>::first);
  if (opposite != opposites.end() && !value)
    return {std::string(opposite->second), Value::of(false), std::move(place)};
  if (name.starts_with("no_") && !value && std::ranges::find(straight, name) == straight.end())
    return {name.substr(3), Value::of(false), std::move(place)};
  return {std::move(name), value ? parse_value(*value) : Value::of(true), std::move(place)};
}

Script read_script(std::string_view text, const std::string& where) {
  ScriptReader reader(where);
  reader.read(text, 1, 0);
  return std::move(reader).result();
}

std::vector<Entry> read_printed(std::string_view text, const std::string& where) {
  std::vector<Entry> entries;
  std::set<std::string_view> seen;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    const auto found = printed(line);
    if (!found || !seen.insert(found->first).second) return;
    if (entries.size() == most_entries) throw Error("{}: more than {} arguments", where, most_entries);
    entries.push_back(
        {std::string(found->first), parse_value(found->second), fmt::format("{}:{}", where, number)});
  });
  return entries;
}

bool has_printed(std::string_view text) {
  std::size_t lines = 0;
  for_each_line(text, [&](std::string_view line, std::size_t) { lines += printed(line) ? 1 : 0; });
  return lines >= 5;
}

}  // namespace assay::config
