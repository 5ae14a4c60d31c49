#include "assay/compare/pairs/insides.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

namespace assay {
namespace {

// A call of a module in a micro-batch.
using Key = std::tuple<std::int64_t, std::int64_t, std::string_view>;

// Recorders name a function after the module that calls it: "layers.0.mlp.silu()".
bool is_function(const LogicalTensor& t) {
  return t.within && t.id.module.ends_with("()");
}

Key caller_of(const LogicalTensor& t) {
  const std::string_view module = t.id.module;
  const std::size_t dot = module.rfind('.');
  return {t.id.step, t.id.micro_batch, dot == std::string_view::npos ? "" : module.substr(0, dot)};
}

// What each module calls, in its order.
std::map<Key, std::string> calls(const std::vector<LogicalTensor>& tensors) {
  std::map<Key, std::string> all;
  for (const LogicalTensor& t : tensors) {
    if (is_function(t) && t.id.phase == Phase::forward) {
      all[caller_of(t)] +=
          fmt::format("{} {} {} {} {};", t.id.module, t.id.call, t.id.slot, t.id.arg, to_string(t.shape));
    }
  }
  return all;
}

}  // namespace

std::string leave_out_other_insides(std::vector<LogicalTensor>& actual,
                                    std::vector<LogicalTensor>& reference) {
  const auto is_within = [](const LogicalTensor& t) { return t.within; };
  if (std::ranges::none_of(actual, is_within) && std::ranges::none_of(reference, is_within)) return {};
  // Copies: the names lie in the tensors that are erased.
  std::set<std::tuple<std::int64_t, std::int64_t, std::string>> differing;
  const std::map<Key, std::string> ours = calls(actual), theirs = calls(reference);
  for (const auto* side : {&ours, &theirs}) {
    const auto& other = side == &ours ? theirs : ours;
    for (const auto& [key, text] : *side) {
      const auto found = other.find(key);
      if (found == other.end() || found->second != text)
        differing.emplace(std::get<0>(key), std::get<1>(key), std::get<2>(key));
    }
  }
  const auto ids = [](const std::vector<LogicalTensor>& tensors) {
    std::set<Identity> all;
    for (const LogicalTensor& t : tensors) all.insert(t.id);
    return all;
  };
  const std::set<Identity> of_actual = ids(actual), of_reference = ids(reference);
  std::size_t left_out = 0;
  const auto prune = [&](std::vector<LogicalTensor>& tensors, const std::set<Identity>& other) {
    left_out += std::erase_if(tensors, [&](const LogicalTensor& t) {
      if (!t.within) return false;
      if (!is_function(t)) return !other.contains(t.id);
      const Key key = caller_of(t);
      return differing.contains({std::get<0>(key), std::get<1>(key), std::string(std::get<2>(key))}) ||
             !other.contains(t.id);
    });
  };
  prune(actual, of_reference);
  prune(reference, of_actual);
  return left_out == 0
             ? ""
             : fmt::format("{} tensors within modules are left out: the two sides make them differently",
                           left_out);
}

}  // namespace assay
