#include "assay/operators/engine/wrong_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "assay/operators/engine/binding.h"

namespace assay {
namespace {

std::vector<Candidate> windows(const Attributes& right, std::int64_t tokens) {
  constexpr std::int64_t each = 64;
  std::vector<Candidate> all;
  const auto add = [&](std::int64_t left) {
    const std::vector<double> window = {static_cast<double>(left), -1};
    all.push_back({{{"window_size", window}}, fmt::format("window_size = [{}, -1]", left)});
  };
  for (std::int64_t left = 0; left < std::min(each, tokens - 1); ++left) add(left);
  for (std::int64_t left = each; left < tokens; left *= 2) {
    if (left > each) add(left - 1);
    add(left);
  }
  if (right.has("is_causal") && right.flag("is_causal"))
    all.push_back({{{"is_causal", false}, {"window_size", std::vector<double>{-1, 1}}},
                   "is_causal = false, window_size = [-1, 1]"});
  return all;
}

}  // namespace

std::vector<Candidate> windows_by_heads(const Attributes& right, std::span<const InputShape> inputs) {
  const InputShape* q = find_input(inputs, "q");
  return q == nullptr || q->shape.size() < 2 ? std::vector<Candidate>()
                                             : windows(right, q->shape[q->shape.size() - 2]);
}

std::vector<Candidate> windows_by_tokens(const Attributes& right, std::span<const InputShape> inputs) {
  for (const std::string_view name : {"v", "kv", "qkv"}) {
    if (const InputShape* v = find_input(inputs, name); v != nullptr && v->shape.size() >= 3)
      return windows(right, v->shape[1]);
  }
  return {};
}

}  // namespace assay
