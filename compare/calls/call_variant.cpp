#include "assay/compare/calls/call_variant.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/calls/case_writer.h"
#include "assay/operators/engine/fp8_codes.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// Values of an attribute as texts, the default first.
struct Choice {
  std::string_view attribute;
  std::vector<std::string_view> values;
};

const Attribute& attribute_of(const Operator& op, std::string_view name) {
  return *std::ranges::find(op.attributes, name, &Attribute::name);
}

std::vector<Choice> choices_of(const Operator& op) {
  std::vector<Choice> choices;
  for (const Seen& row : op.seen) {
    const std::string_view initial = attribute_of(op, row.attribute).initial;
    if (std::ranges::find(choices, row.attribute, &Choice::attribute) == choices.end())
      choices.push_back({row.attribute, {initial}});
    const auto choice = std::ranges::find(choices, row.attribute, &Choice::attribute);
    if (parse_attribute(row.value) != parse_attribute(initial)) choice->values.push_back(row.value);
  }
  return choices;
}

void add(std::string& text, const std::string& more) {
  text += (text.empty() ? "" : ", ") + more;
}

std::string gain_text(const Operator& op, CallVariant::Weight how) {
  switch (how) {
    case CallVariant::Weight::as_recorded:
      return std::string(op.gain);
    case CallVariant::Weight::plus_one:
      return fmt::format("{} + 1", op.gain);
    case CallVariant::Weight::rounded_plus_one:
      return fmt::format("{} + 1 rounded to its dtype", op.gain);
    case CallVariant::Weight::left_out:
      break;
  }
  return fmt::format("no {}", op.gain);
}

void add_scaled(std::vector<CallVariant>& variants, const Operator& op) {
  const std::size_t count = variants.size();
  for (const auto how : {CallVariant::Weight::plus_one, CallVariant::Weight::rounded_plus_one}) {
    for (std::size_t i = 0; i < count; ++i) {
      variants.push_back(variants[i]);
      variants.back().weight = how;
      add(variants.back().text, gain_text(op, how));
    }
  }
}

std::string fp8_text() {
  return fmt::format("float8_e4m3fn operands in blocks of {}", fp8_block);
}

void add_fp8(std::vector<CallVariant>& variants) {
  for (std::size_t i = 0, count = variants.size(); i < count; ++i) {
    variants.push_back(variants[i]);
    variants.back().fp8 = true;
    add(variants.back().text, fp8_text());
  }
}

// A flag is 0 or 1.
std::optional<double> number_of(const AttributeValue& v) {
  if (const bool* flag = std::get_if<bool>(&v)) return *flag ? 1 : 0;
  const double* number = std::get_if<double>(&v);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

}  // namespace

CauseParameters other_attributes(const Operator& op, const CallVariant& actual, const CallVariant& right) {
  CauseParameters p = {.op = std::string(op.name),
                       .actual_attributes = differences(op, actual, right),
                       .reference_attributes = differences(op, right, actual)};
  std::vector<const Attribute*> different;
  for (const Attribute& a : op.attributes) {
    if (value_of(actual, a) != value_of(right, a)) different.push_back(&a);
  }
  if (different.size() != 1) return p;
  p.attribute = different.front()->name;
  p.value = number_of(value_of(actual, *different.front()));
  p.reference_value = number_of(value_of(right, *different.front()));
  return p;
}

std::vector<CallVariant> variants_of(const Operator& op) {
  std::vector<CallVariant> variants(1);
  for (const Choice& choice : choices_of(op)) {
    std::vector<CallVariant> wider;
    for (const std::string_view value : choice.values) {
      for (CallVariant variant : variants) {
        if (value != choice.values.front()) {
          variant.attributes.set(std::string(choice.attribute), parse_attribute(value));
          add(variant.text, fmt::format("{} = {}", choice.attribute, value));
        }
        wider.push_back(std::move(variant));
      }
    }
    variants = std::move(wider);
  }
  if (!op.gain.empty()) add_scaled(variants, op);
  if (op.narrowing == Narrowing::to_result_fp8) add_fp8(variants);
  for (std::size_t i = 0, count = variants.size(); i < count * op.layouts.size(); ++i) {
    const Layout& layout = op.layouts[i / count];
    variants.push_back(variants[i % count]);
    variants.back().permutation.assign(layout.order.begin(), layout.order.end());
    add(variants.back().text, std::string(layout.dims));
  }
  return variants;
}

AttributeValue value_of(const CallVariant& v, const Attribute& attribute) {
  const auto given = v.attributes.values().find(attribute.name);
  return given == v.attributes.values().end() ? parse_attribute(attribute.initial) : given->second;
}

CallVariant with(const Operator& op, CallVariant variant, std::string_view attribute, AttributeValue value) {
  variant.attributes.set(std::string(attribute), std::move(value));
  variant.text = differences(op, variant, {});
  return variant;
}

CallVariant with(const Operator& op, CallVariant variant, const Attributes& attributes) {
  for (const auto& [name, value] : attributes.values()) variant = with(op, std::move(variant), name, value);
  return variant;
}

bool is_same(const CallVariant& a, const CallVariant& b) {
  return a.attributes.values() == b.attributes.values() && a.permutation == b.permutation &&
         a.weight == b.weight && a.fp8 == b.fp8;
}

namespace {

// The variants of the operator with all else as in the right call. A default is stated, for the right call
// may have another; a value of the right call that no row lists may go with each of them.
std::vector<CallVariant> variants_beside(const Operator& op, const CallVariant& right) {
  const std::vector<Choice> choices = choices_of(op);
  const auto is_listed = [&](const Choice& choice) {
    const AttributeValue value = value_of(right, attribute_of(op, choice.attribute));
    return std::ranges::any_of(choice.values, [&](const auto& v) { return parse_attribute(v) == value; });
  };
  std::vector<CallVariant> all;
  for (const CallVariant& listed : variants_of(op)) {
    CallVariant stated = listed, kept = listed;
    stated.attributes = kept.attributes = right.attributes;
    bool has_own = false;
    for (const Choice& choice : choices) {
      const std::string name(choice.attribute);
      const bool is_set = listed.attributes.values().contains(name);
      const AttributeValue value =
          is_set ? listed.attributes.values().at(name) : parse_attribute(choice.values.front());
      stated.attributes.set(name, value);
      if (is_set || is_listed(choice))
        kept.attributes.set(name, value);
      else
        has_own = true;
    }
    all.push_back(std::move(stated));
    if (has_own) all.push_back(std::move(kept));
  }
  return all;
}

int count_of_differences(const Operator& op, const CallVariant& a, const CallVariant& b) {
  const auto attributes = std::ranges::count_if(
      op.attributes, [&](const Attribute& each) { return value_of(a, each) != value_of(b, each); });
  return static_cast<int>(attributes) + (a.permutation != b.permutation ? 1 : 0) +
         (a.weight != b.weight ? 1 : 0) + (a.fp8 != b.fp8 ? 1 : 0);
}

}  // namespace

std::vector<CallVariant> mistakes_for(const Operator& op, const CallVariant& right) {
  std::vector<CallVariant> mistakes = variants_beside(op, right);
  if (!op.gain.empty()) {
    mistakes.push_back(right);
    mistakes.back().weight = CallVariant::Weight::left_out;
    add(mistakes.back().text, gain_text(op, CallVariant::Weight::left_out));
  }
  for (const Seen& row : op.mistaken)
    mistakes.push_back(with(op, right, row.attribute, parse_attribute(row.value)));
  // The fewest differences first.
  const auto count = [&](const CallVariant& v) { return count_of_differences(op, v, right); };
  std::erase_if(mistakes, [&](const CallVariant& v) { return count(v) == 0; });
  std::ranges::stable_sort(mistakes, {}, count);
  return mistakes;
}

std::string differences(const Operator& op, const CallVariant& of, const CallVariant& from) {
  std::string text;
  for (const Attribute& a : op.attributes) {
    const AttributeValue value = value_of(of, a);
    if (value == value_of(from, a)) continue;
    const bool is_null = std::holds_alternative<std::monostate>(value);
    add(text, is_null ? fmt::format("no {}", a.name) : fmt::format("{} = {}", a.name, attribute_text(value)));
  }
  if (of.weight != from.weight) add(text, gain_text(op, of.weight));
  if (of.permutation != from.permutation) {
    const auto layout = std::ranges::find_if(
        op.layouts, [&](const Layout& l) { return std::ranges::equal(l.order, of.permutation); });
    add(text, layout == op.layouts.end() ? "the recorded order of dimensions" : std::string(layout->dims));
  }
  if (of.fp8 != from.fp8) add(text, of.fp8 ? fp8_text() : "operands as recorded");
  return text;
}

const std::vector<Arithmetic>& narrow_arithmetics() {
  static const std::vector<Arithmetic> list = [] {
    std::vector<Arithmetic> all;
    for (const DType d : {DType::hfloat32, DType::tfloat32, DType::float16, DType::bfloat16}) {
      for (const Rounding r : {Rounding::nearest_even, Rounding::toward_zero}) all.push_back({d, r, {}});
    }
    // One after the other, in the tiles of matrix kernels, pairwise.
    for (const DType d : {DType::float16, DType::bfloat16}) {
      for (const std::int64_t block : {0, 16, 32, 64, 128}) {
        all.push_back({});
        all.back().sums = {.block = block, .accumulator = d};
      }
      all.push_back({});
      all.back().sums = {.pairwise = true, .accumulator = d};
    }
    return all;
  }();
  return list;
}

std::string describe(const Arithmetic& a) {
  if (a.inputs)
    return fmt::format("of inputs {} to {}", a.rounding == Rounding::toward_zero ? "truncated" : "rounded",
                       name(*a.inputs));
  return fmt::format("with sums kept in {}, added up {}", name(a.sums.accumulator.value_or(DType::float32)),
                     a.sums.pairwise    ? "pairwise"
                     : a.sums.block > 0 ? fmt::format("in blocks of {}", a.sums.block)
                                        : "one after the other");
}

}  // namespace assay
