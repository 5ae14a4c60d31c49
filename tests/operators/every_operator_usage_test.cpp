#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"
#include "every_operator.h"

namespace assay::every_operator_usage_test {
namespace {

bool has_arg(const Operator& op, std::string_view name) {
  return std::ranges::find(op.args, name, &Arg::name) != op.args.end();
}

bool has_letter(const Operator& op, std::string_view letter) {
  return std::ranges::any_of(op.args, [&](const Arg& arg) {
    return std::ranges::any_of(parts_of(arg.shape), [&](const Part& part) { return part.letter == letter; });
  });
}

// A row that names nothing would be silent for ever.
TEST_P(EveryOperator, UsageNamesWhatTheOperatorHas) {
  for (const auto& rows : {op.seen, op.mistaken}) {
    for (const Seen& row : rows) {
      Attributes attributes;
      attributes.set(std::string(row.attribute), parse_attribute(row.value));
      EXPECT_NO_THROW(complete_attributes(op, attributes)) << row.attribute << " = " << row.value;
      EXPECT_FALSE(row.who.empty()) << row.attribute << " = " << row.value;
    }
  }
  for (const Solved& row : op.solved) {
    EXPECT_NE(std::ranges::find(op.attributes, row.attribute, &Attribute::name), op.attributes.end())
        << row.attribute;
    const bool is_listed = row.by == Solved::By::candidates;
    EXPECT_EQ(is_listed, !row.how.empty()) << row.attribute;
    EXPECT_TRUE(!is_listed || op.candidates != nullptr) << row.attribute;
  }
  for (const RecordedAs& row : op.recorded_as) EXPECT_TRUE(has_arg(op, row.arg)) << row.arg;
  for (const SameAxis& row : op.same_axis)
    EXPECT_TRUE(has_letter(op, row.letter) && has_letter(op, row.same)) << row.letter;
  for (const std::string_view arg : {op.gain, op.linear_in})
    EXPECT_TRUE(arg.empty() || has_arg(op, arg)) << arg;
  for (const Arg& arg : op.args) EXPECT_TRUE(arg.gap.empty() || has_arg(op, arg.gap)) << arg.gap;
  EXPECT_TRUE(op.with_parameter.empty() || known_operator(op.with_parameter) != nullptr);
}

std::int64_t elements_before(const Shape& shape, std::size_t dim) {
  return element_count(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim)));
}

// A dimension that the result has is as long there, or begins where as many elements stand before it
// (reshape).
TEST_P(EveryOperator, DimsOfInputsAreDimsOfTheResult) {
  if (op.dims_in_result == nullptr) return;
  for (const CallShape& call : calls()) {
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 1);
    const Shape y = compute_golden(op, inputs, call.attributes, Level::fp64).front().tensor.shape();
    for (const NamedTensor& input : inputs) {
      if (input_arg(op, input.name).role != Role::input) continue;
      const Shape& x = input.tensor.shape();
      const Shape dims = op.dims_in_result(x, y, complete_attributes(op, call.attributes));
      ASSERT_EQ(dims.size(), x.size()) << input.name;
      for (std::size_t d = 0; d < x.size(); ++d) {
        if (dims[d] == not_in_result) continue;
        ASSERT_LT(dims[d], std::ssize(y)) << input.name;
        const auto at = static_cast<std::size_t>(dims[d]);
        EXPECT_TRUE(x[d] == y[at] || elements_before(x, d) == elements_before(y, at))
            << input.name << " " << d;
      }
    }
  }
}

}  // namespace
}  // namespace assay::every_operator_usage_test
