// Terms are units but for a mask M and -M: units that meet a mask are lost, so the sum counts the units
// outside of the smallest partial sum that holds both masks.
#include "assay/golden/reveal_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "assay/golden/error.h"
#include "assay/golden/sum_questions.h"

namespace assay {
namespace {

using Leaves = std::vector<std::int64_t>;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class TreeFinder {
 public:
  explicit TreeFinder(SumQuestions& questions) : questions_(questions), n_(questions.terms()) {}

  SumOrder run() {
    if (n_ == 1) return {1, {}};
    Task whole;
    for (std::int64_t i = 0; i < n_; ++i) whole.leaves.push_back(i);
    const Leaves all = whole.leaves;
    std::vector<Task> tasks = {std::move(whole)};
    while (!tasks.empty()) {
      SumQuestions::Batch batch(questions_);
      for (const Task& task : tasks) {
        for (const std::int64_t leaf : task.leaves) {
          if (leaf != task.pivot()) add_questions(batch, task.pivot(), leaf, task.counted());
        }
      }
      const std::vector<double> answers = std::move(batch).answers();
      std::vector<Task> next;
      std::span<const double> left = answers;
      for (Task& task : tasks) take_answers(task, left, next);
      tasks = std::move(next);
    }
    SumOrder order = order_of_nodes();
    if (n_ > 2) check(order, all);
    return order;
  }

 private:
  struct Node {
    std::int64_t leaf = -1;
    std::vector<std::size_t> operands = {};
  };
  // Leaves that are one operand of an addition, or several of one with more than two. `beside`: a leaf of
  // another operand; -1: there is none.
  struct Task {
    std::size_t of = 0;
    Leaves leaves;
    std::int64_t beside = -1;
    bool from_end = false;
    std::int64_t pivot() const { return from_end ? leaves.back() : leaves.front(); }
    Leaves counted() const {
      Leaves all = leaves;
      if (beside >= 0) all.push_back(beside);
      return all;
    }
  };

  // Questions that count how many of these leaves lie outside of the smallest partial sum of i and j.
  void add_questions(SumQuestions::Batch& batch, std::int64_t i, std::int64_t j, const Leaves& among) const {
    SumQuestion q = questions_.zeros();
    std::int64_t units = 0;
    const auto finish = [&] {
      questions_.set_masks(q, i, j);
      batch.add(std::exchange(q, questions_.zeros()));
      units = 0;
    };
    for (const std::int64_t leaf : among) {
      if (leaf == i || leaf == j) continue;
      questions_.set_unit(q, leaf);
      if (++units == questions_.countable()) finish();
    }
    if (units > 0) finish();
  }

  // How many of so many leaves the smallest partial sum of i and j holds. Takes the answers.
  std::int64_t held(std::span<const double>& answers, std::int64_t i, std::int64_t j,
                    std::size_t leaves) const {
    std::int64_t inside = 2;
    for (auto left = static_cast<std::int64_t>(leaves) - 2; left > 0; left -= questions_.countable()) {
      const double count = answers.front() / questions_.unit();
      const auto asked = static_cast<double>(std::min(left, questions_.countable()));
      if (!(count >= 0 && count <= asked && count == std::floor(count)))
        throw Error(
            "no order was found: with {:g} and {:g} in terms {} and {}, {} terms of {:g} make {:g}; expected "
            "some "
            "of them whole. The kernel rounds or splits its terms, or has less range than {}",
            questions_.mask(), -questions_.mask(), i, j, asked, questions_.unit(), answers.front(),
            name(questions_.kernel().dtype));
      inside += static_cast<std::int64_t>(asked - count);
      answers = answers.subspan(1);
    }
    return inside;
  }

  void take_answers(Task& task, std::span<const double>& answers, std::vector<Task>& next) {
    const std::size_t counted = task.leaves.size() + (task.beside >= 0 ? 1 : 0);
    std::map<std::int64_t, Leaves> by_size;
    Leaves beside;
    for (const std::int64_t leaf : task.leaves) {
      if (leaf == task.pivot()) continue;
      const std::int64_t size = held(answers, task.pivot(), leaf, counted);
      if (task.beside >= 0 && size == static_cast<std::int64_t>(counted))
        beside.push_back(leaf);
      else
        by_size[size].push_back(leaf);
    }
    std::size_t sum = nodes_.size();
    nodes_.push_back({task.pivot()});
    std::int64_t size = 1;
    if (is_exact(by_size, beside, counted))
      throw Error(
          "no order was found: masks of {:g} hide no term of {:g}. The sum is exact or compensated, or it is "
          "kept in more than {} bits: then its order decides nothing that {} shows",
          questions_.mask(), questions_.unit(), questions_.bits_between(), name(questions_.kernel().dtype));
    for (auto& [of_group, group] : by_size) {
      size += static_cast<std::int64_t>(group.size());
      if (size != of_group)
        throw Error(
            "no order was found: term {} meets {} others in a partial sum of {} terms; expected {}. The "
            "kernel "
            "orders terms by their values, or not always alike",
            task.pivot(), group.size(), of_group, size);
      nodes_.push_back({-1, {sum}});
      sum = nodes_.size() - 1;
      const bool is_all = group.size() + 1 == task.leaves.size() && group.size() > 1;
      next.push_back({sum, std::move(group), task.pivot(), is_all != task.from_end});
    }
    nodes_[task.of].operands.push_back(sum);
    if (!beside.empty()) next.push_back({task.of, std::move(beside), task.beside, task.from_end});
  }

  // Every pair alone: of three terms and more no addition makes that.
  bool is_exact(const std::map<std::int64_t, Leaves>& by_size, const Leaves& beside,
                std::size_t counted) const {
    return counted > 2 && beside.empty() && by_size.size() == 1 && by_size.begin()->first == 2 &&
           by_size.begin()->second.size() > 1;
  }

  SumOrder order_of_nodes() const {
    std::vector<std::int64_t> operand(nodes_.size(), -1), least(nodes_.size(), 0);
    std::vector<SumOrder::Addition> additions;
    std::vector<std::pair<std::size_t, bool>> left = {{nodes_.front().operands.front(), false}};
    while (!left.empty()) {
      const auto [at, is_ready] = left.back();
      left.pop_back();
      const Node& node = nodes_[at];
      if (node.leaf >= 0) {
        operand[at] = least[at] = node.leaf;
      } else if (!is_ready) {
        left.emplace_back(at, true);
        for (const std::size_t o : node.operands) left.emplace_back(o, false);
      } else {
        std::vector<std::size_t> in_order = node.operands;
        // What is there already comes first: a sum before a term, else the one with the first term.
        std::ranges::sort(in_order, {}, [&](std::size_t o) { return std::pair(operand[o] < n_, least[o]); });
        least[at] = least[in_order.front()];
        SumOrder::Addition& made = additions.emplace_back();
        for (const std::size_t o : in_order) {
          made.push_back(operand[o]);
          least[at] = std::min(least[at], least[o]);
        }
        operand[at] = n_ + static_cast<std::int64_t>(additions.size()) - 1;
      }
    }
    return {n_, std::move(additions)};
  }

  // Pairs that decided nothing yet, with all terms as units.
  void check(const SumOrder& order, const Leaves& all) {
    constexpr int pairs = 16;
    std::vector<std::int64_t> parent(index(n_) + order.additions().size(), -1), size(parent.size(), 1);
    for (std::size_t i = 0; i < order.additions().size(); ++i) {
      const std::int64_t sum = n_ + static_cast<std::int64_t>(i);
      size[index(sum)] = 0;
      for (const std::int64_t o : order.additions()[i]) {
        parent[index(o)] = sum;
        size[index(sum)] += size[index(o)];
      }
    }
    std::mt19937_64 random(1);
    SumQuestions::Batch batch(questions_);
    std::vector<std::pair<std::int64_t, std::int64_t>> asked;
    const auto term = [&] { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n_)); };
    while (asked.size() < pairs) {
      const std::int64_t i = term(), j = term();
      if (i == j) continue;
      asked.emplace_back(i, j);
      add_questions(batch, i, j, all);
    }
    const std::vector<double> answers = std::move(batch).answers();
    std::span<const double> left = answers;
    for (const auto& [i, j] : asked) {
      std::int64_t a = i, b = j;
      while (a != b) (a < b ? a : b) = parent[index(std::min(a, b))];  // parents have larger numbers
      const std::int64_t found = held(left, i, j, all.size());
      if (found != size[index(a)])
        throw Error(
            "no order was found: terms {} and {} meet in a partial sum of {} terms; in the tree of the other "
            "answers of {}. The kernel orders terms by their values, or not always alike",
            i, j, found, size[index(a)]);
    }
  }

  SumQuestions& questions_;
  std::int64_t n_;
  std::vector<Node> nodes_ = {{}};
};

}  // namespace

RevealedOrder reveal_order(const KernelUnderQuestion& kernel, const AskKernel& ask) {
  SumQuestions questions(kernel, ask);
  RevealedOrder found(TreeFinder(questions).run(), kernel.dtype);
  reveal_arithmetic(found, questions);
  found.questions = questions.asked();
  return found;
}

}  // namespace assay
