#include <set>

#include "assay/golden/error.h"
#include "every_operator.h"

namespace assay::every_operator_declarations_test {
namespace {

TEST_P(EveryOperator, IsDeclaredSoundly) {
  EXPECT_FALSE(op.math.empty());
  EXPECT_FALSE(op.source.empty());
  EXPECT_FALSE(op.examples.empty()) << "an operator without an example is not tested";
  for (const Attribute& a : op.attributes) {
    EXPECT_NO_THROW(parse_attribute(a.initial)) << a.name;
    EXPECT_FALSE(a.meaning.empty()) << a.name;
  }
  std::set<std::string_view> given, all;
  for (const Arg& arg : op.args) {
    EXPECT_TRUE(all.insert(arg.name).second) << arg.name << " is declared twice";
    EXPECT_LE(arg.low, arg.high) << arg.name;
    const bool real_output = arg.role == Role::output || arg.role == Role::grad_input;
    EXPECT_EQ(real_output && arg.exact == Exact::no, !arg.terms.empty()) << arg.name << ": terms or exact";
    if (arg.role == Role::input || arg.role == Role::param) given.insert(arg.name);
    if (!arg.except.empty()) {
      EXPECT_TRUE(
          std::ranges::any_of(op.attributes, [&](const Attribute& a) { return a.name == arg.except; }));
    }
  }
  EXPECT_TRUE(op.straight_through.empty() || std::ranges::any_of(op.attributes, [&](const Attribute& a) {
                return a.name == op.straight_through;
              }));
  bool has_grad_input = false;
  for (const Arg& arg : op.args) {
    if (arg.role != Role::grad_input) continue;
    has_grad_input = true;
    ASSERT_TRUE(arg.name.starts_with("grad_")) << arg.name;
    EXPECT_TRUE(given.contains(arg.name.substr(5))) << arg.name << " has no input";
  }
  EXPECT_EQ(op.has_backward, has_grad_input);
}

// Each letter of each example at 0 and at 1: golden values of the right shapes, or an Error that says why
// not.
TEST_P(EveryOperator, EmptyAndSingleShapesGiveShapesOrAnError) {
  int empty = 0, single = 0;
  for (const CallShape& call : calls()) {
    for (const auto& [letter, extents] : call.sizes) {
      for (const std::int64_t extent : {0, 1}) {
        CallShape smaller = call;
        smaller.sizes[letter] = Shape(extents.size(), extent);
        try {
          const auto inputs = generate_inputs(op, smaller, Fill::random, DType::float32, 1);
          const auto golden = compute_golden(op, inputs, smaller.attributes, Level::fp64);
          compute_bound(op, inputs, smaller.attributes, float32_model);
          for (const NamedTensor& output : golden) {
            const auto x = std::ranges::find(
                inputs, output.name.substr(std::min<std::size_t>(5, output.name.size())), &NamedTensor::name);
            if (output.name.starts_with("grad_") && x != inputs.end()) {
              EXPECT_EQ(output.tensor.shape(), x->tensor.shape()) << output.name;
            }
            const auto g = std::ranges::find(inputs, "grad_" + output.name, &NamedTensor::name);
            if (g != inputs.end()) {
              EXPECT_EQ(output.tensor.shape(), g->tensor.shape()) << output.name;
            }
          }
          ++(extent == 0 ? empty : single);
        } catch (const Error& error) {
          EXPECT_GT(std::string_view(error.what()).size(), 20u);
        }
      }
    }
  }
  EXPECT_GT(empty, 0);
  EXPECT_GT(single, 0);
}

TEST_P(EveryOperator, ExactOutputsAreTheSameAtEveryLevelAndOnlyTheyCountNoTerms) {
  for (const CallShape& call : calls()) {
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 1);
    const std::vector<InputShape> shapes = shapes_of(inputs);
    const auto floats = outputs<float>(op, inputs, call.attributes);
    const auto truths = outputs<Truth>(op, inputs, call.attributes);
    const auto allowed = bounds(op, inputs, call.attributes, float32_model);
    for (const auto& [name, values] : outputs<double>(op, inputs, call.attributes)) {
      const Arg& arg = output_arg(op, name);
      if (arg.role == Role::output_index) continue;
      const std::int64_t count = accumulation_count(op, name, shapes, call.attributes);
      EXPECT_EQ(count == 0, arg.exact != Exact::no || values.empty()) << name;
      if (arg.exact == Exact::no) continue;
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], floats.at(name)[i]) << name << " at " << i;
        EXPECT_TRUE(truths.at(name)[i] == Truth(values[i])) << name << " at " << i;
        EXPECT_EQ(allowed.at(name)[i].error, 0) << name << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, EveryOperator, testing::ValuesIn(operators()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Operators, NamesAndAliasesAreUnique) {
  std::map<std::string_view, std::string_view> owner;
  for (const Operator* op : operators()) {
    EXPECT_TRUE(owner.emplace(op->name, op->name).second) << op->name;
    for (const std::string_view alias : op->aliases) {
      EXPECT_TRUE(owner.emplace(alias, op->name).second)
          << alias << ": " << op->name << " and " << owner[alias];
      EXPECT_EQ(known_operator(alias), op) << alias;
    }
  }
}

}  // namespace
}  // namespace assay::every_operator_declarations_test
