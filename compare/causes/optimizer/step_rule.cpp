#include "assay/compare/causes/optimizer/step_rule.h"

#include <algorithm>

#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

bool is_number(StepNumber n) {
  return n == StepNumber::kept || n == StepNumber::gradient || n == StepNumber::decay ||
         n == StepNumber::rate || n == StepNumber::count;
}

}  // namespace

bool steps_matrices(const Operator& op) {
  return input_arg(op, op.step->parameter).shape == "M,N";
}

AttributeValue StepRule::value(const StepSetting& s) const {
  return value_of(variant, *std::ranges::find(op->attributes, s.attribute, &Attribute::name));
}

double StepRule::number(const StepSetting& s) const {
  const AttributeValue own = value(s);
  if (const auto* list = std::get_if<std::vector<double>>(&own)) return list->at(s.at);
  if (const bool* flag = std::get_if<bool>(&own)) return *flag ? 1 : 0;
  return std::get<double>(own);
}

StepRule StepRule::of(const Operator& op, const Attributes& given) {
  StepRule rule;
  rule.op = &op;
  rule.variant.attributes = complete_attributes(op, {});
  for (const auto& [name, value] : given.values()) {
    if (rule.variant.attributes.values().contains(name)) rule.set(name, value);
  }
  return rule;
}

void StepRule::set(std::string_view attribute, AttributeValue value) {
  variant.attributes.set(std::string(attribute), std::move(value));
}

void StepRule::set(const StepSetting& s, double number) {
  AttributeValue own = value(s);
  if (auto* list = std::get_if<std::vector<double>>(&own))
    list->at(s.at) = number;
  else
    own = number;
  set(s.attribute, std::move(own));
}

void StepRule::set(const StepForm& form) {
  for (const auto& [attribute, own] : form) set(attribute, own);
}

std::vector<StepSetting> settings_of(const Operator& op, StepNumber kind) {
  std::vector<StepSetting> found;
  for (const StepSetting& s : op.step->settings) {
    if (s.is == kind) found.push_back(s);
  }
  return found;
}

std::size_t result_of(const Operator& op, const StepTensors& t, std::string_view output) {
  for (std::size_t k = 0; k < t.states.size(); ++k) {
    if (op.step->states[k].after == output) return k;
  }
  return t.states.size();
}

std::vector<StepSetting> settings_in(const Operator& op, const StepTensors& t, std::size_t result,
                                     StepNumber kind) {
  std::vector<StepSetting> found = settings_of(op, kind);
  std::erase_if(found, [&](const StepSetting& s) { return result_of(op, t, s.shows_in) != result; });
  return found;
}

std::vector<double> numbers_seen(const Operator& op, const StepSetting& s) {
  StepRule rule = StepRule::of(op);
  std::vector<double> all;
  const auto add = [&](double number) {
    if (std::ranges::find(all, number) == all.end()) all.push_back(number);
  };
  add(rule.number(s));
  for (const Seen& row : op.seen) {
    if (row.attribute != s.attribute) continue;
    rule.set(row.attribute, parse_attribute(row.value));
    add(rule.number(s));
  }
  return all;
}

std::vector<StepForm> forms_in(const Operator& op, const StepTensors& t, std::size_t result) {
  const StepRule defaults = StepRule::of(op);
  std::vector<StepForm> forms(1);
  std::set<std::string_view> done;
  for (const Seen& row : op.seen) {
    const auto of = std::ranges::find(op.step->settings, row.attribute, &StepSetting::attribute);
    const bool is_last = of == op.step->settings.end();
    if (!done.insert(row.attribute).second || (!is_last && is_number(of->is)) ||
        result != (is_last ? t.states.size() : result_of(op, t, of->shows_in)))
      continue;
    const std::size_t count = forms.size();
    const auto initial = defaults.variant.attributes.values().find(row.attribute);
    for (StepForm& form : forms) form[initial->first] = initial->second;
    for (const Seen& other : op.seen) {
      for (std::size_t i = 0; i < count && other.attribute == row.attribute; ++i) {
        StepForm form = forms[i];
        form[std::string(row.attribute)] = parse_attribute(other.value);
        forms.push_back(std::move(form));
      }
    }
  }
  std::ranges::stable_sort(forms, {}, [&](const StepForm& form) {
    return std::ranges::count_if(form, [&](const auto& entry) {
      return entry.second != defaults.variant.attributes.values().at(entry.first);
    });
  });
  return forms;
}

}  // namespace assay
