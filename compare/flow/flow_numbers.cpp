// Numbers of the program, which follow from no data: a scale, an epsilon.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/flow/flow.h"

namespace assay {
namespace {

// What a tensor of one number is in all steps and micro-batches; nothing where it depends on them.
std::optional<double> constant(const SideValues& side, const Name& name, std::size_t fewest) {
  const std::vector<const LogicalTensor*>& all = side.named(name);
  std::optional<double> number;
  for (const LogicalTensor* t : all) {
    const auto tensor = side.read(*t);
    if (tensor->values.size() != 1 || !std::isfinite(tensor->values.front()) ||
        (number && *number != tensor->values.front()))
      return {};
    number = tensor->values.front();
  }
  return all.size() >= fewest ? number : std::nullopt;
}

}  // namespace

// Of a number that the program computes from others, a few roundings leave the first half of the digits.
std::optional<Flow::Judgement> Flow::judge_number(const LogicalTensor& reference,
                                                  const LogicalTensor& actual) const {
  if (actual.id.slot != "input" || actual.id.micro_batch < 0 || element_count(actual.shape) != 1 ||
      !is_float(actual.dtype) || !is_float(reference.dtype))
    return {};
  const Name name = name_of(actual.id);
  // It may count ranks, or micro-batches: other numbers of these make another one.
  const Dump &ours = actual_.dump(), &theirs = reference_.dump();
  if (ours.world_size != theirs.world_size || ours.mesh.shape != theirs.mesh.shape ||
      actual_.named(name).size() != reference_.named(name).size())
    return {};
  auto made = relations_.made.find(name);
  if (made != relations_.made.end() && record_of(made->second.sources.front()) == name)
    made = relations_.made.find(made->second.sources.front());
  if (made != relations_.made.end()) return {};
  // What one micro-batch has may be of its data.
  const auto right = constant(reference_, name, 2), own = constant(actual_, name, 1);
  const double digits = std::max(unit_roundoff(actual.dtype), unit_roundoff(reference.dtype));
  if (!right || !own || std::abs(*own - *right) <= std::sqrt(digits) * std::abs(*right)) return {};
  Judgement j{.ratio = infinity, .how = "the number of the program"};
  j.wrong = fmt::format(
      "it is {:.9g} in all micro-batches and {:.9g} in the reference: a number of the program, as it follows "
      "from no data",
      *own, *right);
  return j;
}

}  // namespace assay
