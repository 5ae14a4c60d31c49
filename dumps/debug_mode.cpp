// The text of PyTorch's DebugMode (debug_string), with the hashes of log_tensor_hashes: a call in each line,
//   "      aten::mm(t: f32[3, 2], t: f32[2, 8])  ->  t: f32[3, 8]  # {'hash': 1.079184568254277}",
// indented below the module that makes it. torch/utils/_debug_mode of PyTorch 2.13.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "assay/dumps/record/readers.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::string_view arrow = "  ->  ", log_mark = "  # {",
                           hash_key = "'hash': ", input_key = "'input_hash': ";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// "aten::mul_.Tensor(..": the call's name; empty for other lines.
std::string_view call_name(std::string_view line) {
  const std::size_t end = line.find('(');
  const std::size_t colons = line.find("::");
  if (end == std::string_view::npos || colons == 0 || colons > end) return "";
  for (const char c : line.substr(0, end)) {
    if (!is_word(c) && c != ':' && c != '.') return "";
  }
  return line.substr(0, end);
}

struct LoggedTensor {
  std::string dtype;
  Shape shape;
};

// Every "t: f32[3, 8]" in the text; "t$4:" has an identity, and "dt:" is a DTensor.
std::vector<LoggedTensor> tensors_in(std::string_view text) {
  std::vector<LoggedTensor> found;
  for (std::size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1)) {
    std::size_t word = at;
    while (word > 0 && is_word(text[word - 1])) --word;
    if (word == at || word < 3 || text.substr(word - 2, 2) != ": ") continue;
    std::size_t name = word - 2;
    while (name > 0 && (is_word(text[name - 1]) || text[name - 1] == '$')) --name;
    const std::string_view kind = text.substr(name, word - 2 - name);
    if (const auto plain = kind.substr(0, kind.find('$')); plain != "t" && plain != "dt") continue;
    LoggedTensor t{std::string(text.substr(word, at - word)), {}};
    const char *next = text.data() + at + 1, *end = text.data() + text.size();
    while (next < end && *next != ']') {
      std::int64_t extent = 0;
      const auto [rest, problem] = std::from_chars(next, end, extent);
      if (problem != std::errc() || extent < 0) break;
      t.shape.push_back(extent);
      for (next = rest; next < end && (*next == ',' || *next == ' ');) ++next;
    }
    if (next < end && *next == ']') found.push_back(std::move(t));
  }
  return found;
}

// The value behind a key of a dictionary as Python prints it: up to the comma or bracket that ends it.
std::string_view logged_value(std::string_view log, std::string_view key) {
  std::size_t at = log.find(key);
  if (at == std::string_view::npos) return "";
  at += key.size();
  int depth = 0;
  for (std::size_t i = at; i < log.size(); ++i) {
    const char c = log[i];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth < 0 || (depth == 0 && c == ',')) return log.substr(at, i - at);
  }
  return log.substr(at);
}

// A norm, which is the sum of all magnitudes in float64; or the exclusive or of hash_tensor, an integer.
struct Hash {
  std::optional<double> norm;
  std::string checksum;
};

// The numbers in a nest of tuples, lists and dictionaries; None stands for what is no tensor.
std::vector<Hash> hashes_in(std::string_view value) {
  std::vector<Hash> found;
  for (std::size_t i = 0; i < value.size();) {
    if (value[i] == '\'') {  // a key
      i = std::min(value.find('\'', i + 1), value.size() - 1) + 1;
      continue;
    }
    std::size_t end = i;
    while (end < value.size() &&
           (is_word(value[end]) || std::string_view("+-.").find(value[end]) != std::string_view::npos))
      ++end;
    if (end == i) {
      ++i;
      continue;
    }
    const std::string_view word = value.substr(i, end - i);
    i = end;
    if (word == "None") continue;
    if (word.find_first_not_of("0123456789") == std::string_view::npos) {
      found.push_back({{}, fmt::format("torch.hash_tensor:{}", word)});
      continue;
    }
    double number = 0;
    const auto [rest, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (problem == std::errc() && rest == word.data() + word.size()) found.push_back({number, ""});
  }
  return found;
}

// "M.layers.0.fc" below its root, a class; "L['self'].layers.0.fc" in a compiled region.
std::string path_of(std::string_view tag) {
  const std::size_t begin = tag.starts_with("L[") ? tag.find(']') + 1 : std::min(tag.find('.'), tag.size());
  return std::string(tag.substr(std::min(begin + (begin < tag.size() && tag[begin] == '.'), tag.size())));
}

class DebugModeLog : public Dump {
 public:
  explicit DebugModeLog(const MappedFile& file) {
    path = file.path();
    format = "DebugMode log";
    has_steps = false;
    std::string_view text = file.text();
    for (std::int64_t line = 1; !text.empty(); ++line) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      read_line(text.substr(0, end), line);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (records.empty())
      throw Error(
          "{}: a log of DebugMode in which no call has a hash; expected what debug_string() prints of a run "
          "with DebugMode.log_tensor_hashes()",
          path.string());
    for (const auto& [op, count] : unknown_)
      left_out.push_back(fmt::format("{}: {} calls: {}", path.string(), count, op));
  }
  Tensor read(std::size_t index) const override {
    throw Error("{}: a log of DebugMode holds no values, only their hashes", location(index));
  }
  std::string location(std::size_t index) const override {
    return fmt::format("{}:{}", path.string(), lines_.at(index));
  }

 private:
  struct Scope {
    std::size_t indent = 0;
    std::string module;
    Phase phase = Phase::none;
  };

  void read_line(std::string_view line, std::int64_t number) {
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos) return;
    line.remove_prefix(indent);
    if (!line.starts_with('[') && call_name(line).empty()) return;
    while (!scopes_.empty() && scopes_.back().indent >= indent) scopes_.pop_back();
    if (line.starts_with("[nn.Mod")) {
      const std::size_t head = line.find("] ");
      if (head == std::string_view::npos) return;
      const bool is_backward = line.starts_with("[nn.Mod (compile bwd)]");
      scopes_.push_back(
          {indent, path_of(line.substr(head + 2)), is_backward ? Phase::backward : Phase::forward});
      return;
    }
    const std::size_t log = line.rfind(log_mark);
    if (log == std::string_view::npos || log > line.size()) return;
    try {
      take(line.substr(0, log), line.substr(log + log_mark.size() - 1), number);
    } catch (const Error& problem) {
      left_out.push_back(fmt::format("{}:{}: {}", path.string(), number, problem.what()));
    }
  }

  void take(std::string_view call, std::string_view log, std::int64_t line) {
    const std::string_view name = call_name(call);
    std::string op(name.substr(name.find("::") + 2));
    op.resize(std::min(op.find('.'), op.size()));
    if (op.size() > 1 && op.ends_with('_')) op.pop_back();  // in place, as a compiled region does not do it
    const std::size_t returns = call.rfind(arrow);
    const std::string_view inputs = call.substr(0, std::min(returns, call.size()));
    const std::string_view outputs =
        returns == std::string_view::npos ? std::string_view() : call.substr(returns + arrow.size());
    Record like;
    const Scope scope = scopes_.empty() ? Scope{} : scopes_.back();
    like.id.phase = scope.phase;
    like.id.module = (scope.module.empty() ? "" : scope.module + ".") + op + "()";
    like.op = std::string(name.substr(0, name.find("::"))) + "." + op;
    like.id.call = calls_[{like.id.phase, like.id.module}]++;
    const std::string_view given = logged_value(log, input_key);
    add(like, "input", tensors_in(inputs), hashes_in(given), line);
    std::string rest(log);  // 'hash' ends 'input_hash', too
    if (const std::size_t at = rest.find(input_key); at != std::string::npos)
      rest.erase(at, input_key.size() + given.size());
    add(like, "output", tensors_in(outputs), hashes_in(logged_value(rest, hash_key)), line);
  }

  void add(Record r, const char* slot, const std::vector<LoggedTensor>& tensors,
           const std::vector<Hash>& hashes, std::int64_t line) {
    if (hashes.empty() || tensors.empty()) return;
    if (hashes.size() % tensors.size() != 0) {
      ++unknown_[fmt::format("{}: {} hashes of {} tensors, which one is of which is not known", r.op,
                             hashes.size(), tensors.size())];
      return;
    }
    const std::size_t each = hashes.size() / tensors.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto dtype = tensors[i].dtype == "b8" ? DType::boolean : parse_dtype(tensors[i].dtype);
      if (!dtype) {
        ++unknown_[fmt::format("{}: a tensor is {}, which cannot be compared", r.op, tensors[i].dtype)];
        continue;
      }
      r.id.slot = slot;
      r.id.arg = slot == std::string_view("output") && tensors.size() == 1 ? "y" : std::to_string(i);
      r.seq = static_cast<std::int64_t>(records.size());
      r.dtype = *dtype;
      r.shape = r.global_shape = tensors[i].shape;
      r.has_bits = false;
      r.checksum.clear();
      r.statistics.reset();
      for (std::size_t k = 0; k < each; ++k) take_hash(r, hashes[i * each + k]);
      records.push_back(r);
      lines_.push_back(line);
    }
  }

  // The sum of n magnitudes in float64 is within n u; integers went through float32.
  static void take_hash(Record& r, const Hash& hash) {
    if (!hash.norm) {
      r.checksum = hash.checksum;
      return;
    }
    if (!std::isfinite(*hash.norm)) {  // a sum of what is finite it is not
      r.checksum = fmt::format("torch.norm:{}", *hash.norm);
      return;
    }
    r.statistics.emplace();
    r.statistics->abs_sum = hash.norm;
    r.statistics->rounding = static_cast<double>(element_count(r.shape)) * unit_roundoff(DType::float64);
    if (!is_float(r.dtype)) r.statistics->rounding += unit_roundoff(DType::float32);
  }

  std::vector<Scope> scopes_;
  std::map<std::pair<Phase, std::string>, std::int64_t> calls_;
  std::map<std::string, std::int64_t> unknown_;
  std::vector<std::int64_t> lines_;  ///< of each record
};

}  // namespace

bool fits_debug_mode(const std::shared_ptr<const MappedFile>& file) {
  // Every line is indented, and a call comes soon.
  constexpr std::size_t most = 64 << 10;
  std::string_view text = file->text().substr(0, most);
  if (!text.starts_with("  ")) return false;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!call_name(line).empty()) return true;
  }
  return false;
}

std::unique_ptr<Dump> open_debug_mode(std::shared_ptr<const MappedFile> file, const OpenOptions&) {
  return std::make_unique<DebugModeLog>(*file);
}

}  // namespace assay
