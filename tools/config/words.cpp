#include "assay/config/words.h"

#include <cctype>

namespace assay::config {
namespace {

// A=$A$A, line after line.
constexpr std::size_t longest_value = 1 << 16;

bool is_name(char c, bool first = false) {
  return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0 ||
         (!first && std::isdigit(static_cast<unsigned char>(c)) != 0);
}

class Cutter {
 public:
  Cutter(std::string_view script, std::size_t line,
         std::map<std::string, std::string, std::less<>>& variables)
      : s_(script), line_(line), variables_(variables) {}

  std::vector<Word> run() {
    while (at_ < s_.size()) step();
    finish();
    return std::move(words_);
  }

 private:
  char next() const { return at_ + 1 < s_.size() ? s_[at_ + 1] : '\0'; }

  void step() {
    const char c = s_[at_];
    if (c == '\\' && next() == '\n') {
      at_ += 2;
      finish();
      ++line_;
    } else if (c == '\\' && next() == '\r' && s_.substr(at_ + 2, 1) == "\n") {
      at_ += 3;
      finish();
      ++line_;
    } else if (c == '\\' && at_ + 1 < s_.size()) {
      add(next());
      at_ += 2;
    } else if (c == '\n') {
      finish();
      if (depth_ == 0) end_command();
      ++line_;
      ++at_;
    } else if (c == '#' && !in_word_) {
      while (at_ < s_.size() && s_[at_] != '\n') ++at_;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      finish();
      ++at_;
    } else if (c == '\'' || c == '"') {
      quoted(c);
    } else if (c == '$') {
      variable();
    } else if (c == '(' || c == ')') {
      parenthesis(c);
    } else if (c == ';' || c == '|' || c == '&' || c == '>' || c == '<') {
      finish();
      end_command();
      ++at_;
    } else {
      add(c);
      ++at_;
    }
  }

  // NAME=( and NAME+=( begin an array, whose name is no word.
  void parenthesis(char c) {
    if (c == '(' && in_word_ && word_.text.ends_with('=')) {
      word_ = {};
      in_word_ = false;
    }
    finish();
    if (c == '(') ++depth_;
    if (c == ')' && depth_ > 0 && --depth_ == 0) end_command();
    ++at_;
  }

  void quoted(char quote) {
    begin();
    if (word_.quoted == std::string::npos) word_.quoted = word_.text.size();
    for (++at_; at_ < s_.size() && s_[at_] != quote;) {
      if (quote == '"' && s_[at_] == '\\' && at_ + 1 < s_.size()) {
        if (next() == '\n') {
          ++line_;
          word_.text += '\n';
        } else {
          word_.text += next();
        }
        at_ += 2;
      } else if (quote == '"' && s_[at_] == '$') {
        variable();
      } else {
        if (s_[at_] == '\n') ++line_;
        word_.text += s_[at_++];
      }
    }
    if (at_ < s_.size()) ++at_;
  }

  // $NAME, ${NAME}, ${NAME:-text}; of anything else nobody knows what it is.
  void variable() {
    begin();
    const std::size_t from = at_++;
    std::string name, otherwise;
    bool known = true, has_default = false;
    if (at_ < s_.size() && s_[at_] == '{') {
      const std::size_t end = s_.find('}', at_);
      const std::string_view inside =
          s_.substr(at_ + 1, (end == std::string_view::npos ? s_.size() : end) - at_ - 1);
      at_ = end == std::string_view::npos ? s_.size() : end + 1;
      std::size_t length = 0;
      while (length < inside.size() && is_name(inside[length], length == 0)) ++length;
      name = inside.substr(0, length);
      const std::string_view rest = inside.substr(length);
      has_default = rest.starts_with(":-") || rest.starts_with("-");
      if (has_default) otherwise = rest.substr(rest.starts_with(":-") ? 2 : 1);
      std::erase_if(otherwise, [](char c) { return c == '"' || c == '\''; });
      known = rest.empty() || has_default;
      if (rest.starts_with("[")) {  // an array: its words stand where it is made
        in_word_ = !word_.text.empty();
        return;
      }
    } else if (at_ < s_.size() && s_[at_] == '(') {
      int depth = 0;
      do {
        depth += s_[at_] == '(' ? 1 : s_[at_] == ')' ? -1 : 0;
        if (s_[at_] == '\n') ++line_;
        ++at_;
      } while (at_ < s_.size() && depth > 0);
      known = false;
    } else {
      while (at_ < s_.size() && is_name(s_[at_], name.empty())) name += s_[at_++];
      if (name.empty() && at_ < s_.size()) ++at_;
      known = !name.empty();
    }
    const auto set = variables_.find(name);
    if (known && set != variables_.end()) {
      // Options in a variable are read where it is set.
      if (set->second.size() + word_.text.size() > longest_value)
        word_.open = true;
      else if (set->second.find("--") == std::string::npos)
        word_.text += set->second;
    } else if (known && has_default && otherwise.find('$') == std::string::npos) {
      word_.text += otherwise;
    } else {
      word_.text += s_.substr(from, at_ - from);
      word_.open = true;
    }
  }

  void begin() {
    if (!in_word_) word_ = {.line = line_};
    in_word_ = true;
  }
  void add(char c) {
    begin();
    word_.text += c;
  }
  void finish() {
    if (!in_word_) return;
    in_word_ = false;
    if (word_.text.empty() && word_.quoted == std::string::npos) return;
    if (const std::string_view name = assigned_name(word_.text); !name.empty() && !word_.open)
      variables_[std::string(name)] = word_.text.substr(name.size() + 1);
    words_.push_back(std::move(word_));
  }
  void end_command() {
    if (!words_.empty() && !words_.back().ends_command)
      words_.push_back({.line = line_, .ends_command = true});
  }

  std::string_view s_;
  std::size_t at_ = 0, line_;
  std::map<std::string, std::string, std::less<>>& variables_;
  int depth_ = 0;  ///< of ( )
  bool in_word_ = false;
  Word word_;
  std::vector<Word> words_;
};

}  // namespace

std::string_view assigned_name(std::string_view word) {
  std::size_t length = 0;
  while (length < word.size() && is_name(word[length], length == 0)) ++length;
  return length > 0 && length < word.size() && word[length] == '=' ? word.substr(0, length)
                                                                   : std::string_view();
}

std::vector<Word> words_of(std::string_view script, std::size_t first_line,
                           std::map<std::string, std::string, std::less<>>& variables) {
  return Cutter(script, first_line, variables).run();
}

}  // namespace assay::config
