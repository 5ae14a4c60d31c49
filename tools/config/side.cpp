#include "assay/config/side.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "assay/config/readers.h"
#include "assay/dumps/io/checksum.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/error.h"

namespace assay::config {
namespace {

constexpr std::string_view expected =
    "expected a config.json, MindFormers YAML, torchtitan TOML, DeepSpeed JSON, Megatron-LM arguments (a "
    "script, or "
    "the list that it prints), a tokenizer or batches of tokens";

// Parts whose keys stand as if they were at the top: what is in them is the model.
constexpr std::string_view model_parts[] = {"model.model_config.", "model_config.", "text_config."};

void lift(std::vector<Entry>& entries) {
  for (Entry& e : entries) {
    for (const std::string_view part : model_parts) {
      if (e.path.starts_with(part)) e.path.erase(0, part.size());
    }
  }
}

bool has(const std::vector<Entry>& entries, std::string_view beginning) {
  return std::ranges::any_of(entries, [&](const Entry& e) { return e.path.starts_with(beginning); });
}

bool is_deepspeed(const Json& json) {
  constexpr std::string_view known[] = {"train_micro_batch_size_per_gpu", "train_batch_size",
                                        "zero_optimization", "gradient_accumulation_steps",
                                        "zero_allow_untested_optimizer"};
  return std::ranges::any_of(known, [&](std::string_view key) { return json.find(key) != nullptr; });
}

bool is_model(const Json& json) {
  constexpr std::string_view known[] = {"model_type", "architectures", "hidden_size", "num_hidden_layers"};
  return std::ranges::any_of(known, [&](std::string_view key) { return json.find(key) != nullptr; });
}

// A word that begins an option, not in a comment and not a key of YAML.
bool has_options(std::string_view text) {
  for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at + 2)) {
    const bool begins =
        at == 0 || std::string_view(" \t\n\"'(=").find(text[at - 1]) != std::string_view::npos;
    const std::size_t line = text.rfind('\n', at) + 1;
    const bool comment = text.substr(line, at - line).find('#') != std::string_view::npos;
    std::size_t end = at + 2;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '-' || text[end] == '_'))
      ++end;
    if (begins && !comment && end > at + 3 && (end == text.size() || text[end] != ':')) return true;
  }
  return false;
}

// A line of it: [training], or lr = 3e-4.
bool looks_like_toml(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line.remove_prefix(first);
    const std::size_t after = line.find_first_of("=:");
    return line.front() == '[' || (after != std::string_view::npos && line[after] == '=');
  }
  return false;
}

class Opener {
 public:
  explicit Opener(Side& side) : side_(side) {}

  // Whether it is of a known kind.
  bool add(const std::filesystem::path& file, bool is_named) {
    const std::string name = file.filename().string(), ending = file.extension().string();
    if (ending == ".npy" || ending == ".safetensors") {
      if (!is_named && file.stem() != "batches") return false;
      set_batches(read_batches(file));
      return true;
    }
    if (ending == ".model" ||
        ending == ".tiktoken") {  // SentencePiece's, of which only the bits are known here
      const auto bits = MappedFile::open(file);
      if (tokenizer().file.empty()) tokenizer().file = file.string();
      tokenizer().settings[ending == ".model" ? "sentencepiece" : "tiktoken"] =
          Value::of("sha256 " + sha256(bits->bytes()).substr(0, 16));
      return true;
    }
    if (ending == ".idx") {
      if (is_named) set_batches(read_indexed(file));
      return is_named;
    }
    const auto mapped = MappedFile::open(file);
    const bool large = mapped->bytes().size() >
                       (name.starts_with("tokenizer") || name.starts_with("vocab") ? 4 : 1) * most_bytes;
    if (large && !is_named) return false;
    if (large)
      throw Error("{}: has {} bytes; expected a configuration, of at most {}", file.string(),
                  mapped->bytes().size(), most_bytes);
    return add_text(mapped->text(), name, file.string());
  }

 private:
  bool add_text(std::string_view text, const std::string& name, const std::string& where) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    if (text.find('\0') != std::string_view::npos) return false;
    if (name == "merges.txt") {
      add_merges(tokenizer(), text);
      return true;
    }
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return false;
    if (text[first] == '{') return add_json(parse_json(text, where, JsonNumbers::python), name, where);
    if (has_printed(text)) {
      add_source(Framework::megatron, where, read_printed(text, where), true);
      return true;
    }
    if (!name.ends_with(".log") && has_options(text)) return add_script(text, where);
    if (looks_like_toml(text)) return add_toml(text, where);
    return name.ends_with(".yaml") || name.ends_with(".yml") || text.find(": ") != std::string_view::npos
               ? add_yaml(text, where)
               : false;
  }

  bool add_json(const Json& json, const std::string& name, const std::string& where) {
    if (is_batches(json)) {
      set_batches(batches_of(json, where));
    } else if (is_deepspeed(json)) {
      add_source(Framework::deepspeed, where, read_json(json, where));
    } else if (is_model(json)) {
      add_source(Framework::huggingface, where, read_json(json, where));
    } else if (is_of_tokenizer(name, json)) {
      add_to_tokenizer(tokenizer(), name, json, where);
    } else {
      return false;
    }
    return true;
  }

  bool add_script(std::string_view text, const std::string& where) {
    Script script = read_script(text, where);
    if (script.options.empty()) return false;
    add_source(Framework::megatron, where, std::move(script.options));
    add_source(Framework::environment, where, std::move(script.environment));
    return true;
  }

  bool add_toml(std::string_view text, const std::string& where) {
    std::vector<Entry> entries = read_toml(text, where);
    const bool known =
        has(entries, "training.") || has(entries, "optimizer.") || has(entries, "parallelism.");
    if (known) add_source(Framework::torchtitan, where, std::move(entries));
    return known;
  }

  // Megatron-LM's tests keep its options in YAML: MODEL_ARGS: {--num-layers: 2}, ENV_VARS: {NCCL_ALGO: Ring}.
  bool add_yaml(std::string_view text, const std::string& where) {
    std::vector<Entry> entries = read_yaml(text, where);
    std::vector<Entry> options, environment;
    for (const Entry& e : entries) {
      const std::size_t dashes = e.path.rfind("--");
      if (dashes != std::string::npos && (dashes == 0 || e.path[dashes - 1] == '.')) {
        const bool is_on = e.value.kind == Value::Kind::flag && e.value.number == 1;
        Entry option = variable_of(e.path.substr(dashes + 2),
                                   is_on ? std::nullopt : std::optional(e.value.text), e.place);
        if (e.value.text.find("${") != std::string::npos) option.value = Value::open(e.value.text);
        options.push_back(std::move(option));
      } else if (e.path.starts_with("ENV_VARS.")) {
        environment.push_back({e.path.substr(9), e.value, e.place});
      }
    }
    if (!options.empty()) {
      add_source(Framework::megatron, where, std::move(options));
      add_source(Framework::environment, where, std::move(environment));
      return true;
    }
    const bool known = has(entries, "model.model_config.") || has(entries, "parallel_config.") ||
                       has(entries, "runner_config.") || has(entries, "training_args.");
    if (!known) return false;
    lift(entries);
    add_source(Framework::mindformers, where, std::move(entries));
    return true;
  }

  // The names of files say enough: the report's head has the folders.
  static void shorten(std::vector<Entry>& entries, const std::string& where) {
    const std::size_t folder = where.size() - std::filesystem::path(where).filename().string().size();
    for (Entry& e : entries) e.place.erase(0, folder);
  }
  void add_source(Framework framework, const std::string& where, std::vector<Entry> entries,
                  bool complete = false) {
    shorten(entries, where);
    if (framework == Framework::huggingface) lift(entries);
    side_.sources.push_back({framework, where, std::move(entries), complete});
  }
  Tokenizer& tokenizer() {
    if (!side_.tokenizer) side_.tokenizer.emplace();
    return *side_.tokenizer;
  }
  void set_batches(Batches b) {
    if (side_.batches)
      throw Error("{}: holds batches, as {} does; expected one file of them", b.file, side_.batches->file);
    side_.batches = std::move(b);
  }

  Side& side_;
};

void add_folder(Opener& opener, Side& side, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code problem;
    if (entry.is_regular_file(problem)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  bool any = false;
  for (const std::filesystem::path& file : files) {
    const std::string ending = file.extension().string();
    // A README has options, too.
    constexpr std::string_view read[] = {".json", ".yaml", ".yml",         ".toml",  ".sh",      ".args",
                                         ".log",  ".npy",  ".safetensors", ".model", ".tiktoken"};
    const bool is_read = std::ranges::find(read, ending) != std::end(read) || file.filename() == "merges.txt";
    const bool known = is_read && opener.add(file, false);
    if (!known) side.passed_over.push_back(file.string());
    any = any || known;
  }
  if (!any) throw Error("{}: has no file of a known kind; {}", folder.string(), expected);
}

}  // namespace

Side open_side(const std::filesystem::path& path) {
  return open_side(std::vector<std::string>{path.string()});
}

Side open_side(const std::vector<std::string>& paths) {
  Side side;
  side.path = fmt::format("{}", fmt::join(paths, ", "));
  Opener opener(side);
  for (const std::filesystem::path path : paths) {
    std::error_code problem;
    if (std::filesystem::is_directory(path, problem))
      add_folder(opener, side, path);
    else if (!opener.add(path, true))
      throw Error("{}: is of no known kind; {}", path.string(), expected);
  }
  std::ranges::stable_sort(side.sources, {}, &Source::framework);
  return side;
}

std::string Side::text() const {
  std::vector<std::string> parts;
  const auto add = [&](std::string part) {
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
  };
  for (const Source& s : sources) {
    if (!s.entries.empty()) add(std::string(row_of(s.framework).file));
  }
  if (tokenizer) add("a tokenizer");
  if (batches) add("batches of tokens");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace assay::config
