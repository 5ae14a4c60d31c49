// The text of an order. Sums within sums may be as deep as there are terms: nothing here calls itself.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "assay/golden/error.h"
#include "assay/golden/sum_order.h"

namespace assay {
namespace {

constexpr std::int64_t most_terms = std::int64_t{1} << 24;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  SumOrder run() {
    open_.push_back({'\0', {}});
    bool expects_operand = true;
    while (true) {
      skip_spaces();
      if (at_ == text_.size()) break;
      const char c = text_[at_];
      if (expects_operand && (c == '(' || c == '{')) {
        open_.push_back({c == '(' ? ')' : '}', {}});
        ++at_;
      } else if (expects_operand && c >= '0' && c <= '9') {
        add_terms();
        expects_operand = false;
      } else if (!expects_operand && c == '+') {
        expects_operand = true;
        ++at_;
      } else if (!expects_operand && open_.size() > 1 && c == open_.back().end) {
        close();
        ++at_;
      } else {
        fail();
      }
    }
    if (expects_operand || open_.size() != 1) fail();
    close();
    return SumOrder(terms_, in_numbers());
  }

 private:
  // Partial sums are numbered from the end of all terms on, which is not known yet: -1, -2, ..
  struct Open {
    char end;
    std::vector<std::int64_t> operands;
  };

  [[noreturn]] void fail() const {
    throw Error("order '{}{}': '{}' at {}; expected such as 0..7+8, (0+1)+(2+3) or {{0..15}}+16",
                text_.substr(0, 40), text_.size() > 40 ? ".." : "", text_.substr(at_, 12), at_);
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  std::int64_t number() {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    if (error != std::errc() || n < 0 || n >= most_terms) fail();
    at_ = static_cast<std::size_t>(end - text_.data());
    return n;
  }

  void add_terms() {
    const std::int64_t first = number();
    std::int64_t last = first, step = 1;
    if (text_.substr(at_).starts_with("..")) {
      at_ += 2;
      last = number();
      if (at_ < text_.size() && text_[at_] == ':') {
        ++at_;
        step = number();
      }
    }
    if (step < 1 || (last - first) % step != 0) fail();
    const std::int64_t by = last < first ? -step : step;
    for (std::int64_t i = first;; i += by) {
      open_.back().operands.push_back(i);
      terms_ = std::max(terms_, i + 1);
      if (++seen_ > most_terms) fail();
      if (i == last) break;
    }
  }

  void close() {
    const Open closed = std::move(open_.back());
    open_.pop_back();
    std::int64_t sum = closed.operands.front();
    if (closed.end == '}') {
      if (closed.operands.size() > 1) sum = add(closed.operands);
    } else {
      for (std::size_t i = 1; i < closed.operands.size(); ++i) sum = add({sum, closed.operands[i]});
    }
    if (!open_.empty()) open_.back().operands.push_back(sum);
  }

  std::int64_t add(std::vector<std::int64_t> operands) {
    additions_.push_back(std::move(operands));
    return -static_cast<std::int64_t>(additions_.size());
  }

  std::vector<SumOrder::Addition> in_numbers() {
    for (SumOrder::Addition& addition : additions_) {
      for (std::int64_t& operand : addition) {
        if (operand < 0) operand = terms_ - 1 - operand;
      }
    }
    return std::move(additions_);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t terms_ = 0, seen_ = 0;
  std::vector<Open> open_;
  std::vector<SumOrder::Addition> additions_;
};

// Operands in a row, runs of terms as ranges.
class Row {
 public:
  void add_term(std::int64_t term) {
    const std::int64_t step = run_.empty() ? 0 : term - run_.back();
    if (run_.size() > 1 && step != run_[1] - run_[0]) {
      // The last of two may begin a longer run.
      const bool is_pair = run_.size() == 2;
      const std::int64_t last = run_.back();
      if (is_pair) run_.pop_back();
      flush();
      if (is_pair) run_.push_back(last);
    }
    run_.push_back(term);
  }
  void add(std::string_view inner) {
    flush();
    separate();
    text_ += inner;
  }
  std::string text() && {
    flush();
    return std::move(text_);
  }

 private:
  void separate() {
    if (!text_.empty()) text_ += '+';
  }
  void flush() {
    if (run_.size() > 2) {
      const std::int64_t step = std::abs(run_[1] - run_[0]);
      separate();
      text_ += fmt::format("{}..{}", run_.front(), run_.back());
      if (step != 1) text_ += fmt::format(":{}", step);
    } else {
      for (const std::int64_t term : run_) {
        separate();
        text_ += std::to_string(term);
      }
    }
    run_.clear();
  }

  std::string text_;
  std::vector<std::int64_t> run_;
};

}  // namespace

SumOrder SumOrder::parse(std::string_view text) {
  return Parser(text).run();
}

// Each chain of additions, ((a + b) + c) + d, is one row.
std::string SumOrder::text() const {
  if (additions_.empty()) return "0";
  std::vector<std::string> texts(additions_.size());
  std::vector<bool> goes_on(additions_.size(), false);  // as the first operand of a binary addition
  const auto addition_of = [&](Operand operand) { return static_cast<std::size_t>(operand - terms_); };
  for (const Addition& a : additions_) {
    if (a.size() != 2 || a[0] < terms_) continue;
    const Addition& first = additions_[addition_of(a[0])];
    const bool is_row_of_terms = first.back() < terms_ && a.back() >= terms_;  // better told apart
    goes_on[addition_of(a[0])] = first.size() == 2 && !is_row_of_terms;
  }
  for (std::size_t i = 0; i < additions_.size(); ++i) {
    if (goes_on[i]) continue;
    std::vector<Operand> operands(additions_[i].rbegin(), additions_[i].rend());
    const bool at_once = additions_[i].size() > 2;
    while (!at_once && operands.back() >= terms_ && goes_on[addition_of(operands.back())]) {
      const Addition& before = additions_[addition_of(operands.back())];
      operands.pop_back();
      operands.insert(operands.end(), before.rbegin(), before.rend());
    }
    Row row;
    for (auto operand = operands.rbegin(); operand != operands.rend(); ++operand) {
      if (*operand < terms_)
        row.add_term(*operand);
      else
        row.add(texts[addition_of(*operand)]);
    }
    const bool is_whole = i + 1 == additions_.size() && !at_once;
    texts[i] = is_whole  ? std::move(row).text()
               : at_once ? "{" + std::move(row).text() + "}"
                         : "(" + std::move(row).text() + ")";
    for (const Operand operand : operands) {
      if (operand >= terms_) texts[addition_of(operand)] = std::string();
    }
  }
  return texts.back();
}

}  // namespace assay
