#include <fmt/format.h>
#include <gmock/gmock.h>

#include "assay/golden/summation.h"
#include "assay/operators/engine/golden.h"
#include "recorded_pair.h"
#include "seeds.h"

namespace assay::seeded_calls_test {
namespace {

using testing::HasSubstr;

// Operators that were recorded with what they were computed from: float32 arithmetic, stored in `dtype`.
struct Call {
  std::string op, result;
  std::vector<NamedTensor> inputs, params = {};
  Attributes attributes = {};

  Tensor run(DType dtype) const {
    std::vector<NamedTensor> all = inputs;
    all.insert(all.end(), params.begin(), params.end());
    const auto outputs = compute_golden(find_operator(op), all, attributes, Level::report);
    const Tensor& made = output_named(outputs, result);
    return Tensor::from_values(dtype, made.shape(), made.values());
  }
};

// Both sides recorded the same inputs and parameters; the results are given.
Finding diagnosed(const Call& call, const Tensor& wrong, const Tensor& right) {
  RecordedPair run;
  const bool is_linear = call.op == "linear";
  const auto id = [](const char* slot, const std::string& arg, std::int64_t mb) {
    return Identity{0, mb, Phase::forward, "layers.3.m", slot, arg, 0};
  };
  for (const NamedTensor& p : call.params) run.add(id("param", is_linear ? "weight" : p.name, -1), p.tensor);
  for (const NamedTensor& x : call.inputs)
    run.add(id("input", x.name, 0), x.tensor, is_linear ? "matmul" : call.op);
  run.add(id("output", call.result, 0), wrong, right, is_linear ? "matmul" : call.op, 1000);
  return run.diff().findings.back();
}

void expect_diagnosed(const Finding& f, const std::string& text, const std::string& what) {
  EXPECT_EQ(f.verdict, Verdict::failed) << what;
  EXPECT_THAT(first_of(f.diagnoses), HasSubstr(text)) << what;
  ASSERT_TRUE(f.origin) << what;
  EXPECT_EQ(f.origin->kind, Origin::Kind::created) << what;
}

Call norm(std::string_view op, double eps, DType dtype, std::uint64_t seed) {
  // Inputs as small as the epsilons, so that these matter.
  Call call{std::string(op),
            "y",
            {{"x", normal_tensor(dtype, {24, 64}, seed, 3e-3)}},
            {{"weight", normal_tensor(dtype, {64}, seed + 50)}},
            {{"eps", eps}}};
  if (op == "layer_norm") call.params.push_back({"bias", normal_tensor(dtype, {64}, seed + 60)});
  return call;
}

TEST(SeededCalls, EpsilonsOfNorms) {
  struct Epsilons {
    double wrong, right;
    std::string text;
  };
  const Epsilons faults[] = {{1e-5, 1e-6, "with eps = 1e-05, where the reference has eps = 1e-06"},
                             {1e-6, 1e-5, "with eps = 1e-06, where the reference has eps = 1e-05"},
                             {1e-8, 1e-5, "with eps = 1e-08"},
                             {2e-4, 1e-5, "with eps = 0.0002"},
                             {1e-6, 3.5e-5, "with eps = 1e-06, where the reference has eps = 3.5e-05"}};
  for (const char* op : {"rms_norm", "layer_norm"}) {
    for (const Epsilons& eps : faults) {
      for (const std::uint64_t seed : seeds()) {
        for (const DType d : {DType::float32, DType::bfloat16}) {
          const Call is = norm(op, eps.wrong, d, seed), should_be = norm(op, eps.right, d, seed);
          // Narrow results leave several epsilons possible.
          expect_diagnosed(diagnosed(is, is.run(d), should_be.run(d)),
                           fmt::format("attribute: it is {} {}", op, d == DType::float32 ? eps.text : ""),
                           fmt::format("{} {}, seed {}", name(d), eps.text, seed));
        }
      }
    }
  }
}

TEST(SeededCalls, ScalesOfNorms) {
  for (const std::uint64_t seed : seeds()) {
    for (const DType d : {DType::float32, DType::bfloat16}) {
      const Call call = norm("rms_norm", 1e-6, d, seed);
      const Tensor right = call.run(d);
      Values small = right.values();
      for (double& v : small) v /= 8;  // the root of the square sum, not of its mean
      expect_diagnosed(diagnosed(call, Tensor::from_values(d, right.shape(), small), right),
                       "factor: actual = 0.125 x reference", "sqrt(64)");
      Call centred = call;  // y = x (1 + w) / rms
      Values w = call.params[0].tensor.values();
      for (double& v : w) v += 1;
      centred.params[0].tensor = Tensor::from_values(DType::float32, {64}, w);
      expect_diagnosed(diagnosed(call, centred.run(d), right),
                       "attribute: it is rms_norm with weight + 1, where the reference has", "weight + 1");
      Call bare = call;
      bare.params[0].tensor = Tensor::from_values(d, {64}, Values(64, 1));
      expect_diagnosed(diagnosed(call, bare.run(d), right), "attribute: it is rms_norm with no weight, where",
                       "bare");
    }
  }
}

Call linear(DType dtype, std::uint64_t seed, std::int64_t terms, DType values) {
  return {"linear",
          "y",
          {{"x", Tensor::from_values(dtype, {8, terms}, normal_tensor(values, {8, terms}, seed).values())}},
          {{"w", Tensor::from_values(dtype, {12, terms},
                                     normal_tensor(values, {12, terms}, seed + 50).values())}}};
}

TEST(SeededCalls, NarrowerInputs) {
  for (const std::uint64_t seed : seeds()) {
    for (const DType narrow : {DType::bfloat16, DType::tfloat32, DType::hfloat32}) {
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero}) {
        const Call call = linear(DType::float32, seed, 256, DType::float32);
        Call cut = call;
        for (auto* tensors : {&cut.inputs, &cut.params}) {
          Values values = tensors->front().tensor.values();
          for (double& v : values) v = round_to(narrow, v, rounding);
          tensors->front().tensor =
              Tensor::from_values(DType::float32, tensors->front().tensor.shape(), values);
        }
        const std::string how = rounding == Rounding::toward_zero ? "truncated" : "rounded";
        expect_diagnosed(diagnosed(call, cut.run(DType::float32), call.run(DType::float32)),
                         fmt::format("input_precision: it is linear of inputs {} to {}", how, name(narrow)),
                         fmt::format("{} seed {}", name(narrow), seed));
      }
    }
  }
}

TEST(SeededCalls, NarrowAccumulators) {
  const std::pair<Summation, std::string> orders[] = {
      {{}, "one after the other"}, {{.block = 64}, "in blocks of 64"}, {{.pairwise = true}, "pairwise"}};
  for (const std::uint64_t seed : seeds()) {
    for (const DType narrow : {DType::bfloat16, DType::float16}) {
      for (auto [sums, order] : orders) {
        const Call call = linear(DType::float32, seed, 512, DType::bfloat16);
        const Tensor right = call.run(DType::float32);
        sums.accumulator = narrow;
        const SummationScope scope(sums);
        expect_diagnosed(diagnosed(call, call.run(DType::float32), right),
                         fmt::format("accumulator_precision: it is linear with sums kept in {}, added up {}",
                                     name(narrow), order),
                         fmt::format("{} seed {}", name(narrow), seed));
      }
    }
  }
}

TEST(SeededCalls, RotaryPositions) {
  struct Fault {
    Attributes wrong, right;
    std::string text;
  };
  const Fault faults[] = {
      {{{"offset", 8.0}}, {}, "attribute: it is rope with offset = 8"},
      {{{"base_theta", 1e6}}, {}, "attribute: it is rope with base_theta = 1000000"},
      {{{"style", "interleaved"}}, {}, "attribute: it is rope with style = \"interleaved\""},
      {{},
       {{"yarn.factor", 40.0}},
       "attribute: it is rope with no yarn.factor, where the reference has yarn.factor = 40"},
      {{{"yarn.factor", 40.0}},
       {{"yarn.factor", 40.0}, {"yarn.mscale_all_dim", 1.0}},
       "attribute: it is rope with yarn.mscale_all_dim = 0, where the reference has yarn.mscale_all_dim = 1"},
  };
  for (const std::uint64_t seed : seeds()) {
    for (const DType d : {DType::float32, DType::bfloat16}) {
      for (const Fault& fault : faults) {
        Call is{"rope", "y", {{"x", normal_tensor(d, {2, 40, 64}, seed)}}}, should_be = is;
        is.attributes = fault.wrong;
        should_be.attributes = fault.right;
        expect_diagnosed(diagnosed(is, is.run(d), should_be.run(d)), fault.text,
                         fmt::format("{} {}", name(d), seed));
      }
    }
  }
}

// Errors that no other call of the operator makes.
TEST(SeededCalls, UnrelatedErrorsHaveNoSuchCause) {
  for (const std::uint64_t seed : seeds()) {
    for (const DType d : {DType::float32, DType::bfloat16}) {
      const Call calls[] = {linear(d, seed, 64, d),
                            norm("rms_norm", 1e-6, d, seed),
                            norm("layer_norm", 1e-5, d, seed),
                            {"rope", "y", {{"x", normal_tensor(d, {2, 10, 64}, seed)}}}};
      for (const Call& call : calls) {
        const Tensor right = call.run(d);
        Random random(seed + 900);
        for (const double size : {0.1, 1.0}) {
          Values spread = right.values(), one = right.values();
          for (double& v : spread) v += size * random.normal();
          one[one.size() / 2] += 5.3 * size;  // not by one bit
          for (const Values& wrong : {spread, one}) {
            const Finding f = diagnosed(call, Tensor::from_values(d, right.shape(), wrong), right);
            if (f.verdict == Verdict::passed) continue;
            EXPECT_EQ(first_of(f.diagnoses), "nothing") << call.op << ' ' << name(d) << ' ' << size;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::seeded_calls_test
