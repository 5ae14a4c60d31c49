#include "assay/compare/calls/call_variant.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/operators/engine/fp8_codes.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// Values of an attribute as texts, the default first.
struct Choice {
  std::string_view attribute;
  std::vector<std::string_view> values;
};

std::vector<Choice> choices_of(const Operator& op) {
  std::vector<Choice> choices;
  for (const Seen& row : op.seen) {
    const std::string_view initial =
        std::ranges::find(op.attributes, row.attribute, &Attribute::name)->initial;
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

void add_scaled(std::vector<CallVariant>& variants, CallVariant::Weight weight, const std::string& text) {
  for (std::size_t i = 0, count = variants.size(); i < count; ++i) {
    variants.push_back(variants[i]);
    variants.back().weight = weight;
    add(variants.back().text, text);
  }
}

void add_fp8(std::vector<CallVariant>& variants) {
  for (std::size_t i = 0, count = variants.size(); i < count; ++i) {
    variants.push_back(variants[i]);
    variants.back().fp8 = true;
    add(variants.back().text, fmt::format("float8_e4m3fn operands in blocks of {}", fp8_block));
  }
}

}  // namespace

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
  if (!op.gain.empty()) add_scaled(variants, CallVariant::Weight::plus_one, fmt::format("{} + 1", op.gain));
  if (op.narrowing == Narrowing::to_result_fp8) add_fp8(variants);
  for (std::size_t i = 0, count = variants.size(); i < count * op.layouts.size(); ++i) {
    const Layout& layout = op.layouts[i / count];
    variants.push_back(variants[i % count]);
    variants.back().permutation.assign(layout.order.begin(), layout.order.end());
    add(variants.back().text, std::string(layout.dims));
  }
  return variants;
}

std::vector<CallVariant> mistakes_for(const Operator& op, const CallVariant& right) {
  std::vector<CallVariant> mistakes;
  for (CallVariant& variant : variants_of(op)) {
    if (variant.text != right.text) mistakes.push_back(std::move(variant));
  }
  if (!op.gain.empty()) {
    mistakes.push_back(right);
    mistakes.back().weight = CallVariant::Weight::left_out;
    add(mistakes.back().text, fmt::format("no {}", op.gain));
  }
  for (const Seen& row : op.mistaken) {
    mistakes.push_back(right);
    mistakes.back().attributes.set(std::string(row.attribute), parse_attribute(row.value));
    add(mistakes.back().text, fmt::format("{} = {}", row.attribute, row.value));
  }
  return mistakes;
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
