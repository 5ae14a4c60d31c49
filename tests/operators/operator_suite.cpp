#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "assay/golden/error.h"
#include "assay/operators/binding.h"
#include "assay/operators/certified.h"
#include "assay/operators/generate.h"

// What every operator must hold to, at each of its examples: a new operator is tested by being in the list.
namespace assay {
namespace {

constexpr ErrorModel float32_model{0x1p-24, 0x1p-149}, float64_model{0x1p-53, 0x1p-1074};
constexpr std::int64_t most_elements = 40;  // of one tensor, where every element costs an evaluation

// Outputs as scalars of the level, by name.
template <class T>
std::map<std::string, std::vector<T>> outputs(const Operator& op, const std::vector<NamedTensor>& inputs,
                                              const Attributes& attributes) {
  std::map<std::string, std::vector<T>> found;
  const Tensors<T> tensors = evaluate<T>(op, inputs, attributes);
  for (const auto& made : tensors.slots()) {
    const bool given =
        std::ranges::any_of(inputs, [&](const NamedTensor& t) { return t.name == made.first; });
    if (!given) found[made.first] = made.second.values;
  }
  return found;
}

std::map<std::string, std::vector<Bound>> bounds(const Operator& op, const std::vector<NamedTensor>& inputs,
                                                 const Attributes& attributes, const ErrorModel& model) {
  const ErrorScope scope(model);
  return outputs<Bound>(op, inputs, attributes);
}

double magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// The same tensor with one element replaced.
Tensor with_element(const Tensor& tensor, std::int64_t position, double value) {
  std::vector<double> values = tensor.values();
  values[static_cast<std::size_t>(position)] = value;
  return Tensor::from_values(tensor.dtype(), tensor.shape(), values);
}

// Positions spread over a tensor, all of them if it is small.
std::vector<std::int64_t> sample(std::int64_t size) {
  std::vector<std::int64_t> positions;
  const std::int64_t step = std::max<std::int64_t>(1, (size + most_elements - 1) / most_elements);
  for (std::int64_t i = 0; i < size; i += step) positions.push_back(i);
  return positions;
}

class EveryOperator : public testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op = *GetParam();
  std::vector<Call> calls() const {
    std::vector<Call> all;
    for (const Example& example : op.examples) all.push_back(parse_call(example));
    return all;
  }
};

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

TEST_P(EveryOperator, Float64IsWithinItsBoundOfTheTruth) {
  for (const Call& call : calls()) {
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 1);
    const auto values = outputs<double>(op, inputs, call.attributes);
    const auto truths = outputs<Truth>(op, inputs, call.attributes);
    const auto allowed = bounds(op, inputs, call.attributes, float64_model);
    for (const auto& [name, value] : values) {
      const double scale = magnitude(value);
      for (std::size_t i = 0; i < value.size(); ++i) {
        const auto error = std::abs(static_cast<double>(Truth(value[i]) - truths.at(name)[i]));
        EXPECT_LE(error, allowed.at(name)[i].error) << name << " at " << i;
        EXPECT_LE(error, 1e-14 * scale) << name << " at " << i;
      }
    }
  }
}

// A bound that is never approached proves nothing: per output the largest error/bound must be above
// `least_use`, and the bound of a whole tensor below `largest_share` of its values.
TEST_P(EveryOperator, Float32IsWithinItsBoundOfFloat64) {
  constexpr double least_use = 0.02, largest_share = 1e-3;
  struct Use {
    double ratio = 0, share = 0;
    bool exact = true;
  };
  std::map<std::string, Use> uses;
  for (const Call& call : calls()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, seed);
      const auto values = outputs<float>(op, inputs, call.attributes);
      const auto golden = outputs<double>(op, inputs, call.attributes);
      const auto allowed = bounds(op, inputs, call.attributes, float32_model);
      for (const auto& [name, value] : values) {
        Use& use = uses[name];
        const double scale = magnitude(golden.at(name));
        for (std::size_t i = 0; i < value.size(); ++i) {
          const double error = std::abs(value[i] - golden.at(name)[i]);
          const double bound = allowed.at(name)[i].error;
          EXPECT_LE(error, bound) << name << " at " << i << ", seed " << seed;
          if (bound > 0) use.ratio = std::max(use.ratio, error / bound);
          use.share = std::max(use.share, bound / scale);
          use.exact = use.exact && bound == 0;
        }
      }
    }
  }
  for (const auto& [name, use] : uses) {
    RecordProperty(
        name, fmt::format("{:.2g} of the bound, bound {:.2g} of the largest value", use.ratio, use.share));
    if (use.exact) continue;
    EXPECT_GE(use.ratio, least_use) << name;
    EXPECT_LE(use.share, largest_share) << name;
  }
}

// The error that a proof takes its own float64 arithmetic to have.
TEST_P(EveryOperator, OwnErrorsCoverTheTruth) {
  const ErrorModel own{.unit_roundoff = 0x1p-53, .min_subnormal = 0x1p-1074, .own = true};
  for (const Call& call : calls()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, seed);
      const auto truths = outputs<Truth>(op, inputs, call.attributes);
      for (const auto& [name, values] : bounds(op, inputs, call.attributes, own)) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (!std::isfinite(values[i].value)) continue;
          const Truth error = abs(truths.at(name)[i] - Truth(values[i].value));
          // The bound is a float64 itself, and 50 digits have errors of their own.
          const Truth allowed = Truth(values[i].error) * Truth(1 + 0x1p-50) +
                                (abs(truths.at(name)[i]) + Truth(1)) * Truth(0x1p-150);
          EXPECT_TRUE(error <= allowed) << name << " at " << i << ", seed " << seed << ": "
                                        << static_cast<double>(error) << " of " << values[i].error;
        }
      }
    }
  }
}

// Certified values are the truth rounded to float32, once; every one of them is proved but for ties.
TEST_P(EveryOperator, CertifiedIsCorrectlyRounded) {
  for (const Call& call : calls()) {
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 6);
    const auto truths = outputs<Truth>(op, inputs, call.attributes);
    for (const CertifiedTensor& output : compute_certified(op, inputs, call.attributes)) {
      const Proof& proof = output.proof;
      const Tensor& tensor = output.value.tensor;
      std::int64_t ties = 0;
      if (!is_float(tensor.dtype())) continue;
      EXPECT_EQ(tensor.dtype(), DType::float32);
      const auto& truth = truths.at(output.value.name);
      for (std::size_t i = 0; i < truth.size(); ++i) {
        const auto value = static_cast<float>(tensor.value(static_cast<std::int64_t>(i)));
        const auto distance = [&](float f) { return abs(truth[i] - Truth(f)); };
        bool tie = false;
        for (const float away : {-1.f, 1.f}) {
          const float other = std::nextafter(value, away * std::numeric_limits<float>::infinity());
          // 50 digits cannot tell a tie from its neighbourhood where a quotient came in between.
          const bool equal = abs(distance(value) - distance(other)) <= abs(truth[i]) * Truth(0x1p-140);
          EXPECT_TRUE(equal || distance(value) <= distance(other)) << output.value.name << " at " << i;
          tie = tie || equal;
        }
        // Nor a zero from what a cancellation leaves.
        tie = tie || abs(truth[i]) <= Truth(0x1p-140 * magnitude(tensor.values()));
        ties += tie ? 1 : 0;
      }
      EXPECT_LE(proof.unproved, ties) << output.value.name;
      EXPECT_EQ(proof.exact + proof.certified + proof.repaired + proof.unproved, tensor.size());
    }
  }
}

TEST_P(EveryOperator, BackwardIsTheDerivativeOfForward) {
  if (!op.has_backward) GTEST_SKIP() << op.name << " declares no backward";
  // x of at most 11 significand bits + h is exact in float64.
  constexpr double h = 0x1p-40;
  for (const Call& call : calls()) {
    std::vector<NamedTensor> inputs;
    for (const NamedTensor& input : generate_inputs(op, call, Fill::random, DType::bfloat16, 3)) {
      const bool index = !is_float(input.tensor.dtype());
      inputs.push_back({input.name, index ? input.tensor
                                          : Tensor::from_values(DType::float64, input.tensor.shape(),
                                                                input.tensor.values())});
    }
    const auto gradients = outputs<Truth>(op, inputs, call.attributes);
    // A rounding has no derivative: straight-through gradients are those of the call without it.
    Attributes smooth = call.attributes;
    if (!op.straight_through.empty()) smooth.set(std::string(op.straight_through), std::monostate());
    // "grad_y" belongs to the output y; a loss has the one grad_y too.
    const auto functional = [&](const std::vector<NamedTensor>& at) {
      const auto results = outputs<Truth>(op, at, smooth);
      const auto output_of = [&](const std::string& grad) {
        const auto own = results.find(grad.substr(5));
        const auto first = std::ranges::find(op.args, Role::output, &Arg::role);
        return own != results.end() ? own->second : results.at(std::string(first->name));
      };
      Truth total = 0;
      for (const Arg& arg : op.args) {
        if (arg.role != Role::grad_output) continue;
        bool given = false;
        for (const NamedTensor& tensor : at) {
          if (!names(arg, tensor.name)) continue;
          given = true;
          const auto y = output_of(tensor.name);
          const auto g = tensor.tensor.values();
          for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * Truth(g[i]);
        }
        const bool alone = std::ranges::none_of(
            op.args, [](const Arg& a) { return a.role == Role::grad_output && !a.optional; });
        if (given || !alone) continue;
        for (const Truth& y : output_of(std::string(arg.name))) total += y;
      }
      return total;
    };
    for (NamedTensor& input : inputs) {
      const auto gradient = gradients.find("grad_" + input.name);
      if (gradient == gradients.end()) continue;
      const Tensor original = input.tensor;
      for (const std::int64_t i : sample(original.size())) {
        input.tensor = with_element(original, i, original.value(i) + h);
        const Truth above = functional(inputs);
        input.tensor = with_element(original, i, original.value(i) - h);
        const Truth below = functional(inputs);
        input.tensor = original;
        const auto slope = static_cast<double>((above - below) / Truth(2 * h));
        const auto error = static_cast<double>(gradient->second[static_cast<std::size_t>(i)] -
                                               (above - below) / Truth(2 * h));
        EXPECT_LE(std::abs(error), 1e-18 * (1 + std::abs(slope))) << gradient->first << " at " << i;
      }
    }
  }
}

TEST_P(EveryOperator, ExactFillNeedsNoTolerance) {
  if (op.exact_fill == ExactFill::none) GTEST_SKIP() << op.name << " declares no exact fill";
  for (Call call : calls()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const auto inputs = generate_inputs(op, call, Fill::integer, DType::float32, seed);
      const auto truths = outputs<Truth>(op, inputs, call.attributes);
      const auto doubles = outputs<double>(op, inputs, call.attributes);
      const auto floats = outputs<float>(op, inputs, call.attributes);
      for (const auto& [name, truth] : truths) {
        for (std::size_t i = 0; i < truth.size(); ++i) {
          EXPECT_TRUE(truth[i] == Truth(doubles.at(name)[i])) << name << " at " << i;
          EXPECT_EQ(doubles.at(name)[i], floats.at(name)[i]) << name << " at " << i;
        }
      }
    }
  }
}

// Each letter of each example at 0 and at 1: golden values of the right shapes, or an Error that says why
// not.
TEST_P(EveryOperator, EmptyAndSingleShapesGiveShapesOrAnError) {
  int empty = 0, single = 0;
  for (const Call& call : calls()) {
    for (const auto& [letter, extents] : call.sizes) {
      for (const std::int64_t extent : {0, 1}) {
        Call smaller = call;
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

// Every output element that feels a small change of an input must be NaN when the input is; where the input
// also decides what goes where (sort, top-k, max), some element of that output must be.
TEST_P(EveryOperator, NaNReachesEveryOutputThatDependsOnIt) {
  for (const Call& call : calls()) {
    auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 2);
    const auto before = outputs<double>(op, inputs, call.attributes);
    const bool chooses = std::ranges::any_of(
        op.args, [](const Arg& arg) { return arg.role == Role::output_index || arg.exact == Exact::value; });
    for (NamedTensor& input : inputs) {
      if (!is_float(input.tensor.dtype())) continue;
      const Tensor original = input.tensor;
      for (const std::int64_t i : sample(original.size())) {
        input.tensor = with_element(original, i, original.value(i) + 0x1p-20);
        const auto moved = outputs<double>(op, inputs, call.attributes);
        input.tensor = with_element(original, i, std::nan(""));
        const auto poisoned = outputs<double>(op, inputs, call.attributes);
        input.tensor = original;
        for (const auto& [name, values] : before) {
          const auto& after = poisoned.at(name);
          for (std::size_t k = 0; k < values.size(); ++k) {
            if (moved.at(name)[k] == values[k]) continue;
            EXPECT_TRUE(std::isnan(after[k]) ||
                        (chooses && std::ranges::any_of(after, [](double v) { return std::isnan(v); })))
                << name << " at " << k << " depends on " << input.name << " at " << i;
          }
        }
      }
    }
  }
}

// Infinities: the same class of result (NaN, infinite with its sign, finite) in float and in double.
TEST_P(EveryOperator, InfinitiesGiveTheSameKindOfResultAtEveryLevel) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto kind = [](double v) {
    return std::isnan(v) ? "NaN" : v == infinity ? "inf" : v == -infinity ? "-inf" : "finite";
  };
  for (const Call& call : calls()) {
    auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 4);
    for (NamedTensor& input : inputs) {
      if (!is_float(input.tensor.dtype())) continue;
      const Tensor original = input.tensor;
      for (const std::int64_t i : sample(original.size())) {
        for (const double value : {infinity, -infinity}) {
          input.tensor = with_element(original, i, value);
          const auto doubles = outputs<double>(op, inputs, call.attributes);
          const auto floats = outputs<float>(op, inputs, call.attributes);
          for (const auto& [name, values] : doubles) {
            for (std::size_t k = 0; k < values.size(); ++k) {
              EXPECT_STREQ(kind(values[k]), kind(floats.at(name)[k]))
                  << name << " at " << k << ", " << input.name << " at " << i << " is " << value;
            }
          }
        }
      }
      input.tensor = original;
    }
  }
}

TEST_P(EveryOperator, SpecialValuesNeverCrash) {
  for (const Call& call : calls()) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto inputs = generate_inputs(op, call, Fill::special, DType::float32, seed);
      compute_golden(op, inputs, call.attributes, Level::report);
      compute_golden(op, inputs, call.attributes, Level::fp64);
      compute_bound(op, inputs, call.attributes, float32_model);
      outputs<Truth>(op, inputs, call.attributes);
    }
  }
}

TEST_P(EveryOperator, ExactOutputsAreTheSameAtEveryLevelAndOnlyTheyCountNoTerms) {
  for (const Call& call : calls()) {
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
}  // namespace assay
