#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "assay/golden/error.h"
#include "assay/golden/summation.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/generate.h"

// Correct float32 kernels are never rejected: every operator that accumulates, at lengths up to 65536, adding
// from left to right, in blocks and pairwise, for signed and for positive data. ASSAY_SEEDS says how many
// seeds.
namespace assay {
namespace {

constexpr std::int64_t longest = 65536;
constexpr std::int64_t most_elements = 4 * longest;     // of the inputs of one call
constexpr std::int64_t most_terms = 4 * most_elements;  // of its outputs, each element's count taken together

std::uint64_t seeds() {
  const char* text = std::getenv("ASSAY_SEEDS");
  return text == nullptr ? 6 : std::strtoull(text, nullptr, 10);
}

// One extent of a call: which of a letter's.
struct Extent {
  std::string letter;
  std::size_t index = 0;
};

CallShape lengthened(CallShape call, const Extent& extent, std::int64_t length) {
  call.sizes[extent.letter][extent.index] = length;
  return call;
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
        const auto g = golden[t].tensor.values(), v = values[t].tensor.values(),
                   b = allowed[t].tensor.values();
        for (std::size_t i = 0; i < g.size(); ++i) {
          ++compared;
          if (std::abs(g[i]) > 0x1p100) continue;  // an overflow, here or on the way, has no order to blame
          if (std::abs(v[i] - g[i]) <= b[i] || (std::isnan(g[i]) && std::isnan(v[i])) || g[i] == v[i])
            continue;
          ADD_FAILURE() << what << ", "
                        << (order.pairwise    ? "pairwise"
                            : order.block > 0 ? "blocks"
                                              : "sequential")
                        << ": " << golden[t].name << " at " << i << " is " << v[i] << ", golden " << g[i]
                        << ", allowed " << b[i];
          return;
        }
      }
    }
  }
  // Over all elements of all outputs; a scan's have as many terms as elements, each. With `longest`, of the
  // one element that has the most.
  std::int64_t terms_of_outputs(const std::vector<NamedTensor>& inputs, const Attributes& given,
                                bool longest = false) const {
    const Attributes attributes = complete_attributes(op, given);
    const Dims dims = bind_dims(op, shapes_of(inputs), attributes);
    std::int64_t terms = 0;
    for (const Arg& arg : op.args) {
      const bool made = (arg.role == Role::output || arg.role == Role::grad_input) && !is_list(arg);
      if (!made || (arg.optional && !has_input(inputs, arg.name.substr(5)))) continue;
      const std::int64_t count = accumulation_count(op, arg.name, dims);
      terms = longest ? std::max(terms, count)
                      : terms + element_count(shape_of(op, arg, dims, attributes)) * count;
    }
    return terms;
  }

  // Whether a sum gets longer with this extent, which the operator may not have alone.
  bool accumulates_over(const CallShape& call, const Extent& extent) const {
    try {
      const auto terms = [&](const CallShape& c) {
        return terms_of_outputs(generate_inputs(op, c, Fill::random, DType::float32, 1), c.attributes, true);
      };
      return terms(lengthened(call, extent, 64)) > terms(call);
    } catch (const Error&) {
      return false;
    }
  }

  static bool has_input(const std::vector<NamedTensor>& inputs, std::string_view name) {
    return std::ranges::find(inputs, name, &NamedTensor::name) != inputs.end();
  }

  // A length for each seed, as likely between 1 and 2 as between 32768 and 65536.
  void try_length(const CallShape& call, const Extent& extent, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    const double exponent = std::uniform_real_distribution<double>(0, std::log2(longest))(generator);
    const std::int64_t length = std::llround(std::exp2(exponent));
    std::vector<NamedTensor> inputs;
    std::int64_t elements = 0, terms = 0;
    try {
      inputs = generate_inputs(op, lengthened(call, extent, length), Fill::random, DType::float32, seed);
      for (const NamedTensor& input : inputs) elements += input.tensor.size();
      terms = terms_of_outputs(inputs, call.attributes);
    } catch (const Error&) {
      return;  // a length that the operator cannot have: an odd width
    }
    if (elements > most_elements || terms > most_terms) return;
    const std::string what = fmt::format("{} = {}, seed {}", extent.letter, length, seed);
    expect_accepted(inputs, call.attributes, what);
    expect_accepted(positive(inputs), call.attributes, what + ", positive");
  }

  std::int64_t compared = 0;
};

TEST_P(Orders, AreNeverRejected) {
  std::vector<std::pair<CallShape, Extent>> sums;
  for (const Example& example : op.examples) {
    const CallShape call = parse_call(example);
    for (const auto& [letter, extents] : call.sizes) {
      for (std::size_t i = 0; i < extents.size(); ++i) {
        if (accumulates_over(call, {letter, i})) sums.push_back({call, {letter, i}});
      }
    }
  }
  for (std::uint64_t seed = 1; !sums.empty() && seed <= seeds() && !HasFailure(); ++seed) {
    const auto& [call, extent] = sums[seed % sums.size()];
    try_length(call, extent, seed);
  }
  if (compared == 0) GTEST_SKIP() << op.name << " accumulates over no extent that can be lengthened alone";
}

INSTANTIATE_TEST_SUITE_P(Operators, Orders, testing::ValuesIn(operators()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace assay
