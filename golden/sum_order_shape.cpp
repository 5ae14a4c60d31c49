// An order in words. Its partial sums are known by their terms, where these are evenly spaced: first, step
// and count.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "assay/golden/sum_order.h"

namespace assay {
namespace {

constexpr int most_levels = 8;

struct Terms {
  std::int64_t first = 0, last = 0, count = 0, step = 0;
  bool are_even() const { return count == 1 || last - first == step * (count - 1); }
};

Terms together(const Terms& a, const Terms& b) {
  return {std::min(a.first, b.first), std::max(a.last, b.last), a.count + b.count,
          std::gcd(std::gcd(a.step, b.step), b.first - a.first)};
}

class Describer {
 public:
  using Operand = SumOrder::Operand;

  Describer(const SumOrder& order, int level) : order_(order), n_(order.terms()), level_(level) {
    for (std::int64_t i = 0; i < n_; ++i) add({i, i, 1, 0});
    for (const SumOrder::Addition& a : order.additions()) {
      Terms all = terms_[at(a[0])];
      for (std::size_t i = 1; i < a.size(); ++i) all = together(all, terms_[at(a[i])]);
      add(all);
    }
  }

  // Empty: it has no name.
  std::string run() const {
    if (n_ == 1) return "one term";
    if (order_.additions().size() == 1)
      return n_ == 2 ? "in one addition" : fmt::format("all {} terms at once", n_);
    if (std::string fused = in_fused_steps(); !fused.empty()) return fused;
    if (order_.is_binary()) {
      if (is_sequence(false)) return "one after the other";
      if (is_sequence(true)) return "one after the other, the last first";
      if (is_sequence_of_swapped_pairs()) return "one after the other, of each two the second first";
      if (is_pairwise_from_below() || is_pairwise_from_above()) return "pairwise";
      if (is_folded()) return fmt::format("term i with term i + {}, and so on by halves", n_ / 2);
    }
    for (std::int64_t lanes = n_ / 2; lanes > 1; --lanes) {
      if (std::string text = in_lanes(lanes); !text.empty()) return text;
    }
    for (std::int64_t block = 2; block <= n_ / 2; ++block) {
      if (std::string text = in_blocks(block); !text.empty()) return text;
    }
    if (std::string text = with_rest(); !text.empty()) return text;
    return in_two();
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  void add(const Terms& t) {
    if (t.are_even())
      known_[{t.first, t.count == 1 ? 1 : t.step, t.count}] = static_cast<Operand>(terms_.size());
    terms_.push_back(t);
  }
  // -1: no partial sum has these terms.
  Operand find(std::int64_t first, std::int64_t step, std::int64_t count) const {
    const auto found = known_.find({first, count == 1 ? 1 : step, count});
    return found == known_.end() ? -1 : found->second;
  }
  bool has(std::int64_t first, std::int64_t step, std::int64_t count) const {
    return find(first, step, count) >= 0;
  }

  bool is_sequence(bool backwards) const {
    for (std::int64_t count = 2; count < n_; ++count) {
      if (!has(backwards ? n_ - count : 0, 1, count)) return false;
    }
    return true;
  }
  // As a matrix unit takes pairs of narrow numbers.
  bool is_sequence_of_swapped_pairs() const {
    Operand before = -1;
    std::int64_t place = 1;
    for (const SumOrder::Addition& a : order_.additions()) {
      if (before < 0 && std::max(a[0], a[1]) != 1) return false;
      const bool goes_on = before < 0 || a[0] == before || a[1] == before;
      if (!goes_on || (before >= 0 && a[0] + a[1] - before != std::min(place ^ 1, n_ - 1))) return false;
      before = n_ + place - 1;
      ++place;
    }
    return true;
  }
  bool is_pairwise_from_below() const {
    for (std::int64_t block = 2; block < n_; block *= 2) {
      for (std::int64_t i = 0; i < n_; i += block) {
        if (!has(i, 1, std::min(block, n_ - i))) return false;
      }
    }
    return true;
  }
  bool is_pairwise_from_above() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> left = {{0, n_}};
    while (!left.empty()) {
      const auto [first, count] = left.back();
      left.pop_back();
      if (!has(first, 1, count)) return false;
      if (count < 2) continue;
      left.emplace_back(first, count / 2);
      left.emplace_back(first + count / 2, count - count / 2);
    }
    return true;
  }
  bool is_folded() const {
    if ((n_ & (n_ - 1)) != 0) return false;
    for (std::int64_t step = n_ / 2; step > 1; step /= 2) {
      for (std::int64_t i = 0; i < step; ++i) {
        if (!has(i, step, n_ / step)) return false;
      }
    }
    return true;
  }

  // So many terms at a time and the running sum, from the first term on.
  std::string in_fused_steps() const {
    const std::int64_t step = static_cast<std::int64_t>(order_.additions().front().size());
    if (step < 3) return "";
    std::int64_t count = 0;
    for (const SumOrder::Addition& a : order_.additions()) {
      const Operand sum = n_ + (&a - order_.additions().data());
      const Terms& t = terms_[at(sum)];
      const auto summands = static_cast<std::int64_t>(a.size()) - (count == 0 ? 0 : 1);
      if (t.first != 0 || t.step != 1 || !t.are_even() || t.count != count + summands) return "";
      if (summands != step && t.count != n_) return "";
      count = t.count;
    }
    return fmt::format("{} terms and the running sum at once, from the first on", step);
  }

  // The partial sum or the whole order with these operands in the place of terms.
  SumOrder order_of(Operand root, const std::vector<Operand>& leaves) const {
    std::map<Operand, std::int64_t> number;
    for (std::size_t i = 0; i < leaves.size(); ++i) number[leaves[i]] = static_cast<std::int64_t>(i);
    std::vector<Operand> inner, left = {root};
    while (!left.empty()) {
      const Operand operand = left.back();
      left.pop_back();
      if (number.contains(operand)) continue;
      inner.push_back(operand);
      for (const Operand o : order_.additions()[at(operand - n_)]) left.push_back(o);
    }
    std::ranges::sort(inner);
    std::vector<SumOrder::Addition> additions;
    auto next = static_cast<std::int64_t>(leaves.size());
    for (const Operand operand : inner) {
      SumOrder::Addition& made = additions.emplace_back();
      for (const Operand o : order_.additions()[at(operand - n_)]) made.push_back(number.at(o));
      number[operand] = next++;
    }
    return {static_cast<std::int64_t>(leaves.size()), std::move(additions)};
  }
  SumOrder within(Operand root) const {
    std::vector<Operand> leaves;
    const Terms& t = terms_[at(root)];
    for (std::int64_t i = 0; i < t.count; ++i)
      leaves.push_back(t.first + i * std::max<std::int64_t>(t.step, 1));
    return order_of(root, leaves);
  }
  std::string words_of(const SumOrder& order) const {
    return level_ >= most_levels ? "" : Describer(order, level_ + 1).run();
  }

  // Apart from what surrounds it.
  static std::string apart(const std::string& words) {
    return words.find(',') == std::string::npos ? words : "(" + words + ")";
  }

  // "each .., joined .." of groups that are partial sums.
  std::string groups(const std::vector<Operand>& sums) const {
    const SumOrder first = within(sums.front());
    const std::string each = words_of(first);
    for (const Operand sum : sums) {
      const SumOrder other = within(sum);
      if (other.terms() == first.terms() ? other != first : other.terms() > 2 && words_of(other) != each)
        return "";
    }
    const Operand whole = n_ + static_cast<Operand>(order_.additions().size()) - 1;
    const std::string joined = words_of(order_of(whole, sums));
    return each.empty() || joined.empty() ? ""
                                          : fmt::format("each {}, joined {}", apart(each), apart(joined));
  }
  std::string in_lanes(std::int64_t lanes) const {
    std::vector<Operand> sums;
    for (std::int64_t i = 0; i < lanes; ++i) {
      sums.push_back(find(i, lanes, (n_ - i + lanes - 1) / lanes));
      if (sums.back() < 0) return "";
    }
    const std::string text = groups(sums);
    return text.empty() ? "" : fmt::format("{} lanes (term i in lane i mod {}), {}", lanes, lanes, text);
  }
  std::string in_blocks(std::int64_t block) const {
    std::vector<Operand> sums;
    for (std::int64_t i = 0; i < n_; i += block) {
      sums.push_back(find(i, 1, std::min(block, n_ - i)));
      if (sums.back() < 0) return "";
    }
    const std::string text = groups(sums);
    return text.empty() ? "" : fmt::format("blocks of {}, {}", block, text);
  }

  // What does not fill the lanes is often added one by one at the end.
  std::string with_rest() const {
    Operand sum = n_ + static_cast<Operand>(order_.additions().size()) - 1;
    std::int64_t count = n_;
    while (sum >= n_) {
      const SumOrder::Addition& a = order_.additions()[at(sum - n_)];
      const Operand before = find(0, 1, count - 1);
      if (a.size() != 2 || before < 0 || (a[0] != before && a[1] != before)) break;
      sum = before;
      --count;
    }
    if (count == n_ || count < 2) return "";
    const std::string of_first = words_of(within(sum));
    if (of_first.empty()) return "";
    return fmt::format("terms 0 to {}: {}, then {} more one after the other", count - 1, apart(of_first),
                       n_ - count);
  }
  std::string in_two() const {
    const SumOrder::Addition& root = order_.additions().back();
    if (root.size() != 2) return "";
    const auto first_term = [&](Operand operand) { return terms_[at(operand)].first; };
    std::string text;
    for (const Operand part :
         {std::ranges::min(root, {}, first_term), std::ranges::max(root, {}, first_term)}) {
      const Terms& t = terms_[at(part)];
      if (!t.are_even() || t.step > 1) return "";
      const std::string words = words_of(within(part));
      if (words.empty()) return "";
      text +=
          fmt::format("{}terms {} to {}: {}", text.empty() ? "" : ", plus ", t.first, t.last, apart(words));
    }
    return text;
  }

  const SumOrder& order_;
  std::int64_t n_;
  int level_;
  std::vector<Terms> terms_;  // of each operand
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Operand> known_;
};

}  // namespace

std::string SumOrder::describe() const {
  constexpr std::size_t most_letters = 240;  // more say less than the tree
  const std::string words = Describer(*this, 0).run();
  if (!words.empty() && words.size() <= most_letters) return words;
  return fmt::format("a tree of {} additions, {} deep", additions_.size(), depth());
}

}  // namespace assay
