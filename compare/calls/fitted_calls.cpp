#include "assay/compare/calls/fitted_calls.h"

#include <algorithm>

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/calls/recorded_call.h"

namespace assay {
namespace {

// Of all attributes few make the beginning of a result, and a window sees all of one so short.
constexpr std::int64_t places_of_a_beginning = 4;
// What has no such beginning, as it sees what comes behind, is tried as a whole up to this length.
constexpr std::int64_t places_of_the_whole = 32;

// A result shows some attributes only, a router's choice no scaling: what others showed stays.
CallVariant together(const Operator& op, CallVariant known, const CallVariant& found) {
  for (const auto& [name, value] : found.attributes.values()) known = with(op, known, name, value);
  return known;
}

// What was recorded is not tried in another way.
std::vector<CallVariant> variants_for(const Call& call) {
  std::vector<CallVariant> variants = variants_of(call.op());
  if (call.recorded().values().empty()) return variants;
  for (CallVariant& v : variants) v = with(call.op(), std::move(v), call.recorded());
  std::vector<CallVariant> different;
  for (CallVariant& v : variants) {
    if (std::ranges::none_of(different, [&](const CallVariant& other) { return is_same(other, v); }))
      different.push_back(std::move(v));
  }
  return different;
}

// What sees what is behind it has no beginning of its own.
bool is_causal(const Operator& op, const CallVariant& variant) {
  const auto flag = std::ranges::find(op.attributes, "is_causal", &Attribute::name);
  return flag == op.attributes.end() || value_of(variant, *flag) == AttributeValue(true);
}

std::string text_of(const Operator& op, const Attributes& recorded) {
  return with(op, CallVariant(), recorded).text;
}

}  // namespace

FittedCalls::Key FittedCalls::key_in_all_layers(const Operator& op, std::string_view module,
                                                const Attributes& recorded) {
  return {&op, without_numbers(module), text_of(op, recorded)};
}

const CallVariant* FittedCalls::known(const Operator& op, std::string_view module,
                                      const Attributes& recorded) const {
  const Key key = key_in_all_layers(op, module, recorded);
  if (trial_ && trial_->first == key) return &trial_->second;
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  const auto own = of_module_.find({&op, std::string(module), text_of(op, recorded)});
  const bool layers_differ = found->second.size() > 1 && own != of_module_.end();
  return layers_differ ? &own->second : &found->second.back();
}

std::vector<CallVariant> FittedCalls::others(const OfModule& of, const CallVariant& but) const {
  const auto found = known_.find(key_in_all_layers(of.op, of.module, of.recorded));
  std::vector<CallVariant> all = found == known_.end() ? std::vector<CallVariant>() : found->second;
  std::erase_if(all, [&](const CallVariant& v) { return is_same(v, but); });
  return all;
}

std::vector<CallVariant> FittedCalls::seen_beside(const OfModule& of, const CallVariant& but) const {
  const auto excluded = excluded_.find({&of.op, of.module, text_of(of.op, of.recorded)});
  std::vector<CallVariant> all;
  for (const Seen& row : of.op.seen) {
    CallVariant v = with(of.op, but, row.attribute, parse_attribute(row.value));
    const bool is_excluded = excluded != excluded_.end() && excluded->second.contains(v.text);
    if (!is_same(v, but) && !is_excluded) all.push_back(std::move(v));
  }
  return all;
}

bool FittedCalls::makes_too(const OfModule& of, const Call& reference, const CallVariant& variant) {
  if (makes_from_beginning(reference, variant)) return true;
  if (!judge_.is_spent()) excluded_[{&of.op, of.module, text_of(of.op, of.recorded)}].insert(variant.text);
  return false;
}

void FittedCalls::try_out(const OfModule& of, const CallVariant& variant) {
  trial_.emplace(key_in_all_layers(of.op, of.module, of.recorded), variant);
}

// For other modules the one that was known stays the first to be tried.
void FittedCalls::take(const OfModule& of, const CallVariant& variant) {
  end_trial();
  std::vector<CallVariant>& known = known_[key_in_all_layers(of.op, of.module, of.recorded)];
  if (std::ranges::none_of(known, [&](const CallVariant& v) { return is_same(v, variant); }))
    known.insert(known.begin(), variant);
  of_module_.insert_or_assign({&of.op, of.module, text_of(of.op, of.recorded)}, variant);
}

// Blocks that are not known prove no fp8: that other results have to.
bool FittedCalls::makes(const Call& reference, const CallVariant& variant) {
  if (judge_.fit(reference, variant)) return true;
  const auto in_any = reference.compare_in_any_blocks(variant);
  return in_any && judge_.is_within(*in_any);
}

bool FittedCalls::makes_from_beginning(const Call& reference, const CallVariant& variant) {
  const std::optional<Call> beginning =
      is_causal(reference.op(), variant) ? reference.in_first(places_of_a_beginning) : std::nullopt;
  return (!beginning || judge_.fit(*beginning, variant)) && makes(reference, variant);
}

std::optional<CallVariant> FittedCalls::first_that_makes(const Call& call, const Key& key,
                                                         const IsEnough& is_enough) {
  const auto among = [&](const std::vector<CallVariant>& variants) -> std::optional<CallVariant> {
    for (const CallVariant& v : variants) {
      if (judge_.is_spent()) break;
      if (!judge_.fit(call, v)) continue;
      if (auto found = is_enough(v)) return found;
    }
    return {};
  };
  for (const CallVariant& v : variants_for(call)) {
    if (auto found = among({v})) return found;
    if (!judge_.is_spent()) refused_[key].insert(v.text);
  }
  for (const CallVariant& from : variants_for(call)) {
    if (call.evaluations_to_bisect() == 0 || judge_.is_spent()) break;
    if (from.fp8 || !from.permutation.empty()) continue;
    if (auto found = among(judge_.with_bisected(call, from))) return found;
  }
  if (judge_.is_spent()) return {};
  if (auto found = among(call.with_factor())) return found;
  return judge_.is_spent() ? std::nullopt : among(call.with_candidates());
}

std::optional<CallVariant> FittedCalls::fit(const Call& reference, std::string_view module) {
  const Operator& op = reference.op();
  const CallVariant* last = known(op, module, reference.recorded());
  auto found = last != nullptr && makes_from_beginning(reference, *last)
                   ? std::optional(*last)
                   : find(reference, key_in_all_layers(op, module, reference.recorded()));
  if (found)
    of_module_.insert_or_assign({&op, std::string(module), text_of(op, reference.recorded())}, *found);
  return found;
}

std::optional<CallVariant> FittedCalls::find(const Call& reference, const Key& key) {
  const std::optional<Call> beginning = reference.in_first(places_of_a_beginning);
  const auto known = known_.find(key);
  if (known != known_.end()) {
    for (const CallVariant& v : known->second) {
      if (makes_from_beginning(reference, v)) return v;
    }
  }
  std::optional<CallVariant> found;
  if (beginning) {
    found = first_that_makes(*beginning, key, [&](const CallVariant& v) -> std::optional<CallVariant> {
      if (judge_.fit(reference, v, {}, true)) return v;
      const auto other = judge_.first_fit(reference, reference.with_other_values(v));
      return other ? std::optional(other->variant) : std::nullopt;
    });
  }
  if (!found && !(beginning && reference.in_first(places_of_the_whole)))
    found = first_that_makes(reference, key, [](const CallVariant& v) { return std::optional(v); });
  if (!found) return {};
  if (known == known_.end()) return known_[key].emplace_back(*found);
  // Layers of other attributes have names alike.
  const CallVariant both = together(reference.op(), known->second.back(), *found);
  if (!is_same(both, *found) && judge_.fit(reference, both)) return known->second.back() = both;
  const auto same =
      std::ranges::find_if(known->second, [&](const CallVariant& v) { return is_same(v, *found); });
  return same != known->second.end() ? *same : known->second.emplace_back(*found);
}

std::optional<CallJudge::Fit> FittedCalls::fit_both(const Call& actual, const Call& reference,
                                                    const CallVariant& but, std::string_view module) {
  const Key key = key_in_all_layers(actual.op(), module, actual.recorded());
  for (const CallVariant& v : variants_for(actual)) {
    if (v.text == but.text || v.fp8 != but.fp8 || refused_[key].contains(v.text)) continue;
    auto compared = judge_.fit(actual, v);
    if (compared && judge_.fit(reference, v)) return CallJudge::Fit{v, std::move(*compared)};
  }
  return {};
}

}  // namespace assay
