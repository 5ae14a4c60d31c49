#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "assay/golden/error.h"
#include "assay/golden/summation.h"
#include "assay/operators/binding.h"
#include "assay/operators/generate.h"

// Correct float32 kernels are never rejected: every operator that accumulates, at lengths up to 65536, adding from
// left to right, in blocks and pairwise, for signed and for positive data. ASSAY_SEEDS says how many seeds.
namespace assay {
namespace {

constexpr std::int64_t longest = 65536;
constexpr std::int64_t most_elements = 4 * longest;  // of the inputs of one call

std::uint64_t seeds() {
  const char* text = std::getenv("ASSAY_SEEDS");
  return text == nullptr ? 3 : std::strtoull(text, nullptr, 10);
}

// The letters of which some output's accumulation count is made.
std::set<std::string> accumulated_letters(const Operator& op, const Call& call) {
  std::set<std::string> letters;
  for (const Arg& arg : op.args) {
    for (const auto& [letter, extents] : call.sizes) {
      const std::string spaced = " " + std::string(arg.terms) + " ";
      if (spaced.find(" " + letter + " ") != std::string::npos) letters.insert(letter);
    }
  }
  return letters;
}

// The call with one letter made long and the others of the operator's letters kept as in the example.
Call lengthened(const Call& call, const std::string& letter, std::int64_t length) {
  Call longer = call;
  Shape& extents = longer.sizes[letter];
  for (std::int64_t& extent : extents) extent = 1;
  if (!extents.empty()) extents.back() = length;
  return longer;
}

std::vector<NamedTensor> positive(std::vector<NamedTensor> inputs) {
  for (NamedTensor& input : inputs) {
    if (!is_float(input.tensor.dtype())) continue;
    std::vector<double> values = input.tensor.values();
    for (double& v : values) v = std::abs(v);
    input.tensor = Tensor::from_values(input.tensor.dtype(), input.tensor.shape(), values);
  }
  return inputs;
}

class Orders : public testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op = *GetParam();

  void expect_accepted(const std::vector<NamedTensor>& inputs, const Attributes& attributes,
                       const std::string& what) {
    const auto golden = compute_golden(op, inputs, attributes, Level::fp64);
    const auto allowed = compute_bound(op, inputs, attributes, float32_device);
    for (const Summation& order : {Summation{}, Summation{.block = 32}, Summation{.pairwise = true}}) {
      const SummationScope scope(order);
      const auto values = compute_golden(op, inputs, attributes, Level::report);
      for (std::size_t t = 0; t < golden.size(); ++t) {
        if (!is_float(golden[t].tensor.dtype())) continue;
        const auto g = golden[t].tensor.values(), v = values[t].tensor.values(), b = allowed[t].tensor.values();
        for (std::size_t i = 0; i < g.size(); ++i) {
          ++compared;
          if (std::abs(v[i] - g[i]) <= b[i] || (std::isnan(g[i]) && std::isnan(v[i])) || g[i] == v[i]) continue;
          ADD_FAILURE() << what << ", " << (order.pairwise ? "pairwise" : order.block > 0 ? "blocks" : "sequential")
                        << ": " << golden[t].name << " at " << i << " is " << v[i] << ", golden " << g[i]
                        << ", allowed " << b[i];
          return;
        }
      }
    }
  }
  std::int64_t compared = 0;
};

TEST_P(Orders, AreNeverRejected) {
  std::set<std::string> tried;
  for (const Example& example : op.examples) {
    const Call call = parse_call(example);
    for (const std::string& letter : accumulated_letters(op, call)) {
      if (!tried.insert(letter + " " + std::string(example.attributes)).second) continue;
      for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
        std::mt19937_64 generator(seed);
        const double exponent = std::uniform_real_distribution<double>(0, 16)(generator);
        Call longer = lengthened(call, letter, std::llround(std::exp2(exponent)));
        std::vector<NamedTensor> inputs;
        try {
          inputs = generate_inputs(op, longer, Fill::random, DType::float32, seed);
        } catch (const Error&) {
          continue;  // an extent that the operator cannot have (an odd width, another tensor's)
        }
        std::int64_t elements = 0;
        for (const NamedTensor& input : inputs) elements += input.tensor.size();
        if (elements > most_elements) continue;
        const std::string what = letter + " = " + to_string(longer.sizes[letter]) + ", seed " + std::to_string(seed);
        try {
          expect_accepted(inputs, call.attributes, what);
          expect_accepted(positive(inputs), call.attributes, what + ", positive");
        } catch (const Error&) {
          continue;
        }
        if (HasFailure()) return;
      }
    }
  }
  if (tried.empty()) GTEST_SKIP() << op.name << " accumulates over no extent of its inputs";
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Operators, Orders, testing::ValuesIn(operators()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace assay
