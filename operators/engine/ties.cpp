#include "assay/operators/engine/ties.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "assay/operators/engine/order.h"
#include "assay/operators/engine/reduce.h"

namespace assay {
namespace {

bool is_equal(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

bool is_set(const Attributes& a, std::string_view flag) {
  return a.values().contains(flag) && a.flag(flag);
}

// Where the elements lie that are chosen from together: flat positions in x, and of what is chosen in index.
struct Choice {
  std::vector<std::int64_t> among, chosen;
};

std::vector<Choice> choices_of(const Dims& d, const Attributes& a) {
  std::vector<Choice> all;
  if (d.has("S") && d.has("R")) {
    const Groups groups(d.extents("S"), a, "dim");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      Choice& choice = all.emplace_back();
      choice.chosen = {r};
      for (std::int64_t i = 0; i < groups.size(); ++i) choice.among.push_back(groups(r, i));
    }
  } else if (d.has("A") && d.has("B") && d.has("C") && d.has("K")) {
    const std::int64_t C = d.at("C"), K = d.at("K"), B = d.at("B");
    for (std::int64_t i = 0; i < d.at("A") * B; ++i) {
      const std::int64_t first = i / B, behind = i % B;
      Choice& choice = all.emplace_back();
      for (std::int64_t c = 0; c < C; ++c) choice.among.push_back((first * C + c) * B + behind);
      for (std::int64_t k = 0; k < K; ++k) choice.chosen.push_back((first * K + k) * B + behind);
    }
  }
  return all;
}

bool chooses_equals(const std::vector<Choice>& choices, const std::vector<double>& x,
                    const std::vector<std::int64_t>& actual, const std::vector<std::int64_t>& golden) {
  const auto at = [](const auto& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
  for (const Choice& choice : choices) {
    const auto n = std::ssize(choice.among);
    std::set<std::int64_t> seen;
    for (const std::int64_t k : choice.chosen) {
      const std::int64_t i = at(actual, k);
      if (i < 0 || i >= n || !seen.insert(i).second) return false;
      if (!is_equal(at(x, at(choice.among, i)), at(x, at(choice.among, at(golden, k))))) return false;
    }
  }
  return true;
}

// Of each run of equal elements the gradients, sorted.
bool shares_gradients(const std::vector<Choice>& choices, const std::vector<double>& x,
                      const std::vector<double>& actual, const std::vector<double>& golden) {
  const auto less = [](double a, double b) { return stands_before(a, b, false); };
  for (const Choice& choice : choices) {
    const auto at = [&](const auto& v, std::int64_t i) {
      return v[static_cast<std::size_t>(choice.among[static_cast<std::size_t>(i)])];
    };
    const auto n = std::ssize(choice.among);
    const auto order = sorted_positions(n, false, [&](std::int64_t i) { return at(x, i); });
    for (std::size_t begin = 0; begin < order.size();) {
      std::vector<double> a, g;
      std::size_t end = begin;
      for (; end < order.size() && is_equal(at(x, order[end]), at(x, order[begin])); ++end) {
        a.push_back(at(actual, order[end]));
        g.push_back(at(golden, order[end]));
      }
      std::ranges::sort(a, less);
      std::ranges::sort(g, less);
      if (!std::ranges::equal(a, g, is_equal)) return false;
      begin = end;
    }
  }
  return true;
}

}  // namespace

bool is_legal_tie(const Operator& op, std::string_view output, const Tensor& actual,
                  std::span<const NamedTensor> inputs, const Attributes& given) {
  const auto index = std::ranges::find(op.args, Role::output_index, &Arg::role);
  const Tensor* x = find_tensor(inputs, "x");
  if (index == op.args.end() || index->name != "index" || !index->gap.empty() || x == nullptr) return false;
  const Attributes attributes = complete_attributes(op, given);
  const bool even = attributes.values().contains("ties") && attributes.text("ties") == "even";
  if (even || is_set(attributes, "stable") || is_set(attributes, "select_last_index")) return false;
  const auto golden = compute_golden(op, inputs, given, Level::fp64);
  const Tensor* expected = find_tensor(golden, output);
  if (expected == nullptr || actual.shape() != expected->shape()) return false;
  const std::vector<Choice> choices = choices_of(bind_dims(op, shapes_of(inputs), attributes), attributes);
  if (choices.empty()) return false;
  if (output == index->name)
    return !is_float(actual.dtype()) &&
           chooses_equals(choices, x->values(), actual.indices(), expected->indices());
  if (output != "grad_x" || !is_float(actual.dtype())) return false;
  const std::vector<double> stored =
      Tensor::from_values(actual.dtype(), expected->shape(), expected->values()).values();
  return shares_gradients(choices, x->values(), actual.values(), stored);
}

}  // namespace assay
