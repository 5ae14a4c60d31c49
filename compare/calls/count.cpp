#include "assay/compare/calls/count.h"

#include <fmt/format.h>

#include <limits>

#include "assay/compare/calls/declared_args.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

std::optional<KnownCount> count_of_call(const Operator& op, const std::string& output, const Shape& shape,
                                        const std::vector<InputShape>& inputs) {
  try {
    // With default attributes; a result of another shape than these give was made with others.
    const Attributes attributes = complete_attributes(op, {});
    const Arg* arg = find_arg(op, output);
    const bool agrees =
        arg == nullptr || shape_of(op, *arg, bind_dims(op, inputs, attributes), attributes) == shape;
    if (!agrees) return std::nullopt;
    return KnownCount{accumulation_count(op, output, inputs, {}),
                      fmt::format("{} {} of the recorded shapes, default attributes", op.name, output)};
  } catch (const Error&) {
    return std::nullopt;  // recorded under names that are not the operator's: the count stays unknown
  }
}

// An optimizer's results are named after the step: param_1, param_2, ..
std::optional<KnownCount> optimizer_count(const LogicalTensor& t) {
  constexpr std::int64_t most_steps = std::int64_t{1} << 53;
  const Operator* op = t.op.empty() ? nullptr : known_operator(t.op);
  if (op == nullptr || t.id.step < 0 || t.id.step >= most_steps) return std::nullopt;
  Shape grads = {t.id.step + 1};
  grads.insert(grads.end(), t.shape.begin(), t.shape.end());
  const std::vector<InputShape> inputs = {{"param", t.shape, nullptr}, {"grads", grads, nullptr}};
  return count_of_call(*op, fmt::format("param_{}", t.id.step + 1), t.shape, inputs);
}

}  // namespace

std::optional<KnownCount> CountOf::operator()(const LogicalTensor& t) const {
  if (t.count) return KnownCount{*t.count, "the dump"};
  if (t.id.phase == Phase::optimizer) return optimizer_count(t);
  std::optional<KnownCount> total;
  for (const RecordedCall& call : calls_.producers(t)) {
    std::vector<InputShape> inputs;
    for (const RecordedCall::Input& input : call.inputs)
      inputs.push_back({input.name, input.tensor->shape, nullptr});
    const auto part = count_of_call(*call.op, call.output, t.shape, inputs);
    if (!part) return std::nullopt;
    if (!total) total = {0, part->source};
    if (__builtin_add_overflow(total->count, part->count, &total->count))
      total->count = std::numeric_limits<std::int64_t>::max();
  }
  return total;
}

}  // namespace assay
