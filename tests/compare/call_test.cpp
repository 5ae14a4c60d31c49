#include "assay/compare/calls/call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/fitted_calls.h"
#include "recorded_pair.h"

namespace assay::call_test {
namespace {

// y = rms_norm(x) with weights of one, and one element of it that is off.
struct RecordedNorm {
  static constexpr std::int64_t columns = 256;
  static constexpr double enough = 0x1p12;
  MemoryDump dump{"norm"};
  std::vector<LogicalTensor> tensors;

  RecordedNorm(std::int64_t rows, std::int64_t fault_at) {
    const Tensor x = normal_tensor(DType::float32, {rows, columns}, 1);
    const Tensor weight = Tensor::from_values(DType::float32, {columns}, Values(columns, 1));
    const Operator& op = find_operator("rms_norm");
    Values y = compute_golden(op, std::vector<NamedTensor>{{"x", x}, {"weight", weight}}, {}, Level::fp64)
                   .front()
                   .tensor.values();
    y[static_cast<std::size_t>(fault_at)] += 0.5;
    dump.add("x", x);
    dump.add("weight", weight);
    dump.add("y", Tensor::from_values(DType::float32, {rows, columns}, y));
    tensors = logical_tensors(dump);
  }

  const LogicalTensor* tensor(std::string_view module) const {
    return &*std::ranges::find_if(tensors, [&](const LogicalTensor& t) { return t.id.module == module; });
  }

  Call call(std::int64_t worst) const {
    const RecordedCall recorded{
        &find_operator("rms_norm"), "y", {{"x", tensor("x")}, {"weight", tensor("weight")}}};
    return Call(dump, {recorded}, merge(dump, *tensor("y")).tensor.whole()).in_some_rows(enough, worst);
  }
};

// More work than is enough: rows are left out, but never the worst.
TEST(Call, TheRowOfTheWorstElementIsJudged) {
  constexpr std::int64_t rows = 300;
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, std::int64_t{150}, rows - 2, rows - 1}) {
    const std::int64_t fault = row * RecordedNorm::columns + 7;
    const auto ratio = RecordedNorm(rows, fault).call(fault).ratio({});
    ASSERT_TRUE(ratio) << row;
    EXPECT_GT(*ratio, 1) << row;
  }
}

// Causal attention whose scores, probabilities and results are stored in bfloat16.
Call attention_in_steps(double scale, std::uint64_t seed) {
  constexpr std::int64_t B = 2, H = 4, L = 64, D = 16;
  const Tensor q = normal_tensor(DType::bfloat16, {B, H, L, D}, seed),
               k = normal_tensor(DType::bfloat16, {B, H, L, D}, seed + 1),
               v = normal_tensor(DType::bfloat16, {B, H, L, D}, seed + 2);
  const auto stored = [](double x) { return round_to(DType::bfloat16, x); };
  Values out;
  for (std::int64_t row = 0; row < B * H * L; ++row) {
    const std::int64_t first = row / L * L;
    Values p;
    double all = 0;
    for (std::int64_t s = first; s <= row; ++s) {
      double dot = 0;
      for (std::int64_t d = 0; d < D; ++d) dot += q.value(row * D + d) * k.value(s * D + d);
      p.push_back(std::exp(stored(stored(dot) * scale)));
      all += p.back();
    }
    for (std::int64_t d = 0; d < D; ++d) {
      double sum = 0;
      for (std::size_t s = 0; s < p.size(); ++s)
        sum += stored(p[s] / all) * v.value((first + static_cast<std::int64_t>(s)) * D + d);
      out.push_back(sum);
    }
  }
  return Call(find_operator("attention"), {{"q", q}, {"k", k}, {"v", v}}, "out",
              Tensor::from_values(DType::bfloat16, {B, H, L, D}, out), {.intermediate = DType::bfloat16});
}

// The roundings of scores are not off in one direction.
TEST(Call, AnAttributeThatIsOffByLessThanSingleElementsShow) {
  CallVariant causal;
  causal.attributes.set("is_causal", true);
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    const auto right = attention_in_steps(0.25, seed).compare(causal);
    ASSERT_TRUE(right && right->scale);
    EXPECT_TRUE(right->within()) << right->ratio << ", " << describe(*right->scale);
    const auto off = attention_in_steps(0.25 * 1.012, seed).compare(causal);
    ASSERT_TRUE(off && off->scale);
    EXPECT_LE(off->ratio, 1);
    EXPECT_FALSE(off->within()) << describe(*off->scale);
    EXPECT_EQ(off->scale->attribute, "scale");
    EXPECT_NEAR(off->scale->excess, 0.012, 0.002);
  }
}

// Of small inputs one epsilon makes results, and bounds, that are a thousand times those of the other.
// A program that multiplies by weight + 1 rounds it once a channel, in the weight's own dtype.
TEST(Call, ARoundingThatAChannelSharesIsNoFactorOfAll) {
  constexpr std::int64_t rows = 2048, columns = 16;
  const auto narrow = [](const Tensor& t) {
    return Tensor::from_values(DType::bfloat16, t.shape(), t.values());
  };
  CallVariant of_one_more;
  of_one_more.weight = CallVariant::Weight::rounded_plus_one;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Tensor x = normal_tensor(DType::bfloat16, {rows, columns}, seed),
                 weight = normal_tensor(DType::bfloat16, {columns}, 100 + seed, 0.02);
    const auto of = [&](double factor) {
      const Tensor gain =
          narrow(plus(Tensor::from_values(DType::float64, {columns}, Values(columns, 1)), 1, weight));
      const Tensor y =
          output_named(compute_golden(find_operator("layer_norm"),
                                      std::vector<NamedTensor>{{"x", x}, {"weight", gain}}, {}, Level::fp64),
                       "y");
      Values values = y.values();
      for (double& v : values) v *= factor;
      Device device = Device::of(DType::bfloat16);
      device.intermediate = DType::bfloat16;
      const Call call(find_operator("layer_norm"), {{"x", x}, {"weight", weight}}, "y",
                      Tensor::from_values(DType::bfloat16, y.shape(), values), device);
      return call.compare(of_one_more);
    };
    EXPECT_TRUE(of(1)->within()) << seed;
    EXPECT_FALSE(of(1.02)->within()) << seed;
  }
}

// A table whose gradient two ranks hold addends of: each looks up, and rounds, its own.
TEST(Call, AddendsOfAnInputAreRoundedOneByOne) {
  const Tensor index = Tensor::from_indices({4}, std::vector<std::int64_t>{0, 1, 2, 3}),
               table = normal_tensor(DType::float32, {4, 8}, 1),
               first = normal_tensor(DType::float32, {4, 8}, 2),
               rest = normal_tensor(DType::float32, {4, 8}, 3, 1e-3);
  // The addends cancel but for the rest, which each of them has lost some bits of.
  const Tensor second = plus(rest, -1, first);
  MemoryDump dump("two ranks");
  dump.world_size = 2;
  dump.mesh = {{"dp"}, {2}};
  const auto id = [](const char* name) { return Identity{0, 0, Phase::backward, name, "input", "v", 0}; };
  dump.add(id("index"), index);
  dump.add(id("table"), table);
  dump.add_copy(id("g"), 0, first).placements = {{Placement::Kind::partial}};
  dump.add_copy(id("g"), 1, second).placements = {{Placement::Kind::partial}};
  const std::vector<LogicalTensor> tensors = logical_tensors(dump);
  const auto named = [&](std::string_view module) {
    return &*std::ranges::find(tensors, module, [](const LogicalTensor& t) { return t.id.module; });
  };
  const RecordedCall call{&find_operator("embedding"),
                          "grad_weight",
                          {{"weight", named("table")}, {"index", named("index")}, {"grad_y", named("g")}}};
  const auto ratio = [&](double roundings) {
    Values sum = plus(first, 1, second).values();
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] +=
          roundings * unit_roundoff(DType::float32) * std::abs(first.value(static_cast<std::int64_t>(i)));
    return *Call(dump, {call}, Tensor::from_values(DType::float32, {4, 8}, sum)).ratio({});
  };
  EXPECT_LE(ratio(1), 1);
  EXPECT_GT(ratio(8), 1);
}

TEST(Call, TheBoundOfOneVariantIsNotThatOfAnother) {
  const Tensor x = normal_tensor(DType::float32, {8, 64}, 1, 1e-3);
  const auto call = [&] { return Call(find_operator("rms_norm"), {{"x", x}}, "y", x, {}); };
  CallVariant large, small;
  large.attributes.set("eps", 1.0);
  small.attributes.set("eps", 1e-12);
  const Call both = call();
  EXPECT_EQ(both.compare(large)->allowed, call().compare(large)->allowed);
  EXPECT_EQ(both.compare(small)->allowed, call().compare(small)->allowed);
}

// RoPE of a table that no row lists, as kernels in float32 store it: what it is shows in the reference, and
// positions that are off by one in what is judged by it.
TEST(Call, FrequenciesOfAnyTableAreFound) {
  const Operator& op = find_operator("rope");
  CallVariant table, next;
  table.attributes.set("frequencies", std::vector<double>{1, 0.37, 0.011, 0.00002});
  table.attributes.set("style", std::string("interleaved"));
  next = table;
  next.attributes.set("offset", 1.0);
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      const auto call = [&](unsigned of, const CallVariant& made_with) {
        const std::vector<NamedTensor> x = {{"x", normal_tensor(dtype, {2, 16, 4, 8}, of)}};
        Attributes a = made_with.attributes;
        a.set("sequence_dim", 1.0);
        const Tensor y = output_named(compute_golden(op, x, a, Level::fp64), "y");
        return Call(op, x, "y", Tensor::from_values(dtype, y.shape(), y.values()), Device::of(dtype));
      };
      CallJudge judge(CallJudge::Standard::elements, 1e12);
      FittedCalls fitted(judge);
      const auto found = fitted.fit(call(seed, table), "attention");
      ASSERT_TRUE(found) << name(dtype);
      EXPECT_TRUE(found->attributes.has("frequencies")) << name(dtype);
      EXPECT_TRUE(judge.fit(call(seed + 100, table), *found)) << name(dtype);
      EXPECT_FALSE(judge.fit(call(seed + 100, next), *found)) << name(dtype);
    }
  }
}

TEST(Call, ALargeResultIsJudgedInSomeRowsOnly) {
  const Call large = RecordedNorm(3000, 0).call(0), small = RecordedNorm(4, 0).call(0);
  EXPECT_LE(large.work(), 2 * RecordedNorm::enough) << "and a row at least";
  EXPECT_GT(large.work(), small.work());
}

// How far y is from the sum of its experts' rows, where the weights were applied before; nothing if that is
// not known.
std::optional<double> ratio_of_unpermute(const std::vector<std::int64_t>& places, const Tensor& rows,
                                         const Tensor& y) {
  MemoryDump dump{"experts"};
  dump.add("rows", rows);
  dump.add("places", Tensor::from_indices({std::ssize(places)}, places));
  dump.add("y", y);
  const std::vector<LogicalTensor> tensors = logical_tensors(dump);
  const auto tensor = [&](std::string_view module) {
    return &*std::ranges::find_if(tensors, [&](const LogicalTensor& t) { return t.id.module == module; });
  };
  const RecordedCall recorded{&find_operator("moe_unpermute"),
                              "y",
                              {{"expert_out", tensor("rows")}, {"sorted_index", tensor("places")}}};
  return Call(dump, {recorded}, merge(dump, *tensor("y")).tensor.whole()).ratio({});
}

TEST(Call, ExpertsThatWeighTheirRowsNeedNoWeightsBehindThem) {
  const Tensor rows = Tensor::from_values(DType::float32, {6, 1}, Values{1, 2, 4, 8, 16, 32});
  const Tensor y = Tensor::from_values(DType::float32, {3, 1}, Values{1 + 8, 2 + 16, 4 + 32});
  EXPECT_EQ(ratio_of_unpermute({0, 2, 4, 1, 3, 5}, rows, y), 0);
  EXPECT_GT(ratio_of_unpermute({0, 2, 4, 1, 5, 3}, rows, y), 1);
  // With a capacity, choices were dropped and rows are padding.
  const Tensor kept = Tensor::from_values(DType::float32, {3, 1}, Values{1, 2 + 16, 4});
  EXPECT_EQ(ratio_of_unpermute({0, 2, 4, -1, 3, -1}, rows, kept), 0);
}

TEST(Call, OfManyRowsOfExpertsNoneIsLeftOut) {
  constexpr std::int64_t tokens = 3000, width = 2048;
  std::vector<std::int64_t> places;
  for (std::int64_t place = 2 * tokens; place-- > 0;) places.push_back(place);
  const Tensor rows = normal_tensor(DType::float32, {2 * tokens, width}, 1);
  const std::vector<NamedTensor> inputs = {{"expert_out", rows},
                                           {"sorted_index", Tensor::from_indices({2 * tokens}, places)}};
  Attributes attributes;
  attributes.set("top_k", 2.);
  const Tensor y =
      compute_golden(find_operator("moe_unpermute"), inputs, attributes, Level::fp64).front().tensor;
  EXPECT_LE(ratio_of_unpermute(places, rows, Tensor::from_values(DType::float32, y.shape(), y.values())), 1);
}

TEST(Call, OfEqualElementsAnyMayBeChosenOnce) {
  const Operator& op = find_operator("top_k");
  const Tensor x = Tensor::from_values(DType::float32, {2, 3}, Values{.5, .25, .5, 1, 3, 2});
  CallVariant two;
  two.attributes = complete_attributes(op, {{"k", 2}});
  const auto compared = [&](const std::vector<std::int64_t>& index) {
    return Call(op, {{"x", x}}, "index", Tensor::from_indices({2, 2}, index), Device::of(DType::float32))
        .compare(two);
  };
  EXPECT_EQ(compared({0, 2, 1, 2})->ties, 0);
  const auto other = compared({2, 0, 1, 2});
  EXPECT_EQ(other->ratio, 0) << "torch.topk promises no order of equal elements";
  EXPECT_GT(other->ties, 0);
  EXPECT_GT(compared({2, 1, 1, 2})->ratio, 1) << "another value";
  EXPECT_GT(compared({2, 2, 1, 2})->ratio, 1) << "one element twice";
  EXPECT_GT(compared({2, 0, 2, 1})->ratio, 1) << "not in order";
}

// A linear layer of 2^21 terms, right and with one element that is off by a hundredth.
TEST(Call, AQuickLookAllowsNoMoreThanTheWhole) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Tensor x = normal_tensor(dtype, {64, 256}, 1), w = normal_tensor(dtype, {128, 256}, 2);
    const auto made = compute_golden(find_operator("linear"), std::vector<NamedTensor>{{"x", x}, {"w", w}},
                                     {}, Level::report, "y");
    const auto stored = [&](double of_one) {
      Values values = output_named(made, "y").values();
      values[77] *= of_one;
      return Tensor::from_values(dtype, {64, 128}, values);
    };
    const auto call = [&](double of_one) {
      return Call(find_operator("linear"), {{"x", x}, {"w", w}}, "y", stored(of_one), Device::of(dtype));
    };
    CallVariant plain;
    plain.attributes = complete_attributes(find_operator("linear"), {});
    const auto quick = call(1).compare_quickly(plain), whole = call(1).compare(plain);
    ASSERT_TRUE(quick && whole) << name(dtype);
    for (std::size_t i = 0; i < quick->allowed.size(); ++i)
      ASSERT_LE(quick->allowed[i], whole->allowed[i]) << name(dtype) << " " << i;
    EXPECT_LE(quick->ratio, 1);
    EXPECT_FALSE(call(1.01).compare_quickly(plain)) << "it says no more than that it does not know";
    EXPECT_GT(call(1.01).compare(plain)->ratio, 1);
  }
}

}  // namespace
}  // namespace assay::call_test
