#include "assay/compare/calls/fitted_calls.h"

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/recorded_call.h"

namespace assay {
namespace {

// A result shows some attributes only, a router's choice no scaling: what others showed stays.
CallVariant together(const Operator& op, CallVariant known, const CallVariant& found) {
  for (const auto& [name, value] : found.attributes.values()) known = with(op, known, name, value);
  return known;
}

}  // namespace

FittedCalls::Key FittedCalls::key_of(const Operator& op, std::string_view module) {
  return {&op, without_numbers(module)};
}

const CallVariant* FittedCalls::known(const Operator& op, std::string_view module) const {
  const auto found = known_.find(key_of(op, module));
  return found == known_.end() ? nullptr : &found->second;
}

// Blocks that are not known prove no fp8: that other results have to.
std::optional<CallVariant> FittedCalls::fit(const Call& reference, std::string_view module) {
  const Key key = key_of(reference.op(), module);
  if (const auto known = known_.find(key); known != known_.end()) {
    if (judge_.fit(reference, known->second)) return known->second;
    const auto in_any = reference.compare_in_any_blocks(known->second);
    if (in_any && judge_.is_within(*in_any)) return known->second;
  }
  std::optional<CallJudge::Fit> found;
  for (const CallVariant& v : variants_of(reference.op())) {
    if (auto compared = judge_.fit(reference, v)) {
      found = {v, std::move(*compared)};
      break;
    }
    if (!judge_.is_spent()) refused_[key].insert(v.text);
  }
  if (!found) found = judge_.first_fit(reference, judge_.with_bisected(reference, {}));
  if (!found && !judge_.is_spent()) found = judge_.first_fit(reference, reference.with_factor());
  if (!found && !judge_.is_spent()) found = judge_.first_fit(reference, reference.with_candidates());
  if (!found) return {};
  if (const auto known = known_.find(key); known != known_.end()) {
    const CallVariant both = together(reference.op(), known->second, found->variant);
    if (!is_same(both, found->variant) && judge_.fit(reference, both)) found->variant = both;
  }
  return known_[key] = found->variant;
}

std::optional<CallJudge::Fit> FittedCalls::fit_both(const Call& actual, const Call& reference,
                                                    const CallVariant& but, std::string_view module) {
  const Key key = key_of(actual.op(), module);
  for (const CallVariant& v : variants_of(actual.op())) {
    if (v.text == but.text || v.fp8 != but.fp8 || refused_[key].contains(v.text)) continue;
    auto compared = judge_.fit(actual, v);
    if (compared && judge_.fit(reference, v)) return CallJudge::Fit{v, std::move(*compared)};
  }
  return {};
}

}  // namespace assay
