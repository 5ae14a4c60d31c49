#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/scale_test.h"
#include "assay/compare/check.h"
#include "assay/compare/result/printable.h"
#include "assay/operators/engine/golden.h"
#include "recorded_pair.h"

namespace assay::isolate_test {
namespace {

using testing::HasSubstr;
using Kind = Origin::Kind;

Tensor golden(const Tensor& x, const Tensor& w) {
  const auto outputs =
      compute_golden(find_operator("linear"), std::vector<NamedTensor>{{"x", x}, {"w", w}}, {}, Level::fp64);
  return output_named(outputs, "y");
}

// Two projections, one behind the other, and the gradient of the first one's weight.
struct Chain {
  double made = 1;     // factor of what the first one gives
  double between = 1;  // of what the second one gets of it
  double grad = 1;     // of the sum of both ranks' gradients
  DType dtype = DType::float32;

  void record(MemoryDump& d) const {
    const auto add = [&](Phase phase, const char* module, const char* slot, const char* arg, std::int64_t mb,
                         const Tensor& t) {
      d.add({0, mb, phase, module, slot, arg, 0}, t).op = "matmul";
    };
    const auto times = [&](const Tensor& t, double factor) {
      Values values = t.values();
      for (double& v : values) v *= factor;
      return Tensor::from_values(dtype, t.shape(), values);
    };
    const Tensor w = normal_tensor(dtype, {64, 64}, 1, 0.1), x = normal_tensor(dtype, {64, 64}, 2);
    const Tensor y = times(golden(x, w), made), got = times(y, between), z = times(golden(got, w), 1);
    add(Phase::forward, "a", "param", "weight", -1, w);
    add(Phase::forward, "b", "param", "weight", -1, w);
    add(Phase::forward, "a", "input", "x", 0, x);
    add(Phase::forward, "a", "output", "y", 0, y);
    add(Phase::forward, "b", "input", "x", 0, got);
    add(Phase::forward, "b", "output", "y", 0, z);
    const Tensor share = normal_tensor(dtype, {64, 64}, 3);
    add(Phase::backward, "c", "grad", "weight.unreduced", -1, share);
    add(Phase::backward, "c", "grad", "weight", -1, times(share, grad));
  }
};

Report isolated(const Chain& actual, const Chain& reference = {}, const std::filesystem::path& cases = {}) {
  MemoryDump a("a"), r("r");
  actual.record(a), reference.record(r);
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  options.cases = cases;
  return diff(a, r, options);
}

const Finding& at(const Report& r, std::string_view module, std::string_view slot, std::string_view arg) {
  for (const Finding& f : r.findings) {
    if (f.id.module == module && f.id.slot == slot && f.id.arg == arg) return f;
  }
  throw Error("no finding {} {} {}", module, slot, arg);
}

std::int64_t count_of_created(const Report& r) {
  return std::ranges::count_if(r.findings,
                               [](const Finding& f) { return f.origin && f.origin->kind == Kind::created; });
}

TEST(Isolate, CleanRunsHaveNoFinding) {
  for (const DType d : {DType::float32, DType::bfloat16}) {
    const Report report = isolated({.dtype = d});
    EXPECT_EQ(report.exit_status(), 0) << report.first_failure()->reason;
    EXPECT_EQ(report.coverage.has_value(), d == DType::bfloat16) << "with the reference's bits all is right";
  }
}

TEST(Isolate, AFactorSmallerThanOneRoundingIsFoundWhereItIsMade) {
  const std::pair<DType, double> faults[] = {{DType::float32, 1.00001},
                                             {DType::float32, 1 - 1e-5},
                                             {DType::bfloat16, 1.001},
                                             {DType::bfloat16, 0.999}};
  for (const auto& [dtype, factor] : faults) {
    const Report report = isolated({.made = factor, .dtype = dtype}, {.dtype = dtype});
    const Finding& f = at(report, "a", "output", "y");
    EXPECT_EQ(f.verdict, Verdict::failed) << factor;
    ASSERT_TRUE(f.origin) << factor;
    EXPECT_EQ(f.origin->kind, Kind::created);
    EXPECT_THAT(f.reason, HasSubstr("the end-to-end tolerance passes, but the operator is wrong"));
    ASSERT_FALSE(f.diagnoses.empty());
    EXPECT_EQ(f.diagnoses.front().cause, Cause::factor);
    EXPECT_EQ(count_of_created(report), 1) << "what follows from it is right";
    ASSERT_TRUE(report.coverage);
    EXPECT_THAT(
        sentence(*report.coverage),
        testing::StartsWith(
            "4 of 8 tensors are judged by what they were made of, 3 are sources, 1 are not "
            "judged; first c grad weight.unreduced (step 0, backward): no call of its module was recorded"));
  }
}

// One judge: the same ratio and the same cause, whichever verb asks; of factors above and below the bounds.
TEST(Isolate, AWrongCallIsWrittenAsACaseThatCheckJudgesAlike) {
  const std::filesystem::path cases = std::filesystem::path(testing::TempDir()) / "isolate_cases";
  const std::pair<DType, double> faults[] = {
      {DType::float32, 1.05}, {DType::float32, 1.00001}, {DType::bfloat16, 1.05}, {DType::bfloat16, 1.001}};
  for (const auto& [dtype, factor] : faults) {
    std::filesystem::remove_all(cases);
    const Report report = isolated({.made = factor, .dtype = dtype}, {.dtype = dtype}, cases);
    const std::vector<std::filesystem::path> written = find_cases(cases);
    ASSERT_EQ(written.size(), 1u) << "the second projection is right for what it is given";
    const Finding& f = at(report, "a", "output", "y");
    EXPECT_THAT(f.repeat,
                testing::StartsWith("assay check --whole " + shell_quoted(written.front().string())));
    EXPECT_THAT(report.notes, testing::Contains(HasSubstr("wrote 1 wrong call as operator cases to")));
    CheckOptions options;
    options.policies.push_back(load_policy("derived"));
    options.whole = true;
    if (dtype == DType::bfloat16) options.intermediate = dtype;
    EXPECT_THAT(f.repeat.ends_with("--intermediate bfloat16"), dtype == DType::bfloat16) << f.repeat;
    const Report checked = check(written, options);
    ASSERT_EQ(checked.findings.size(), 1u);
    const Finding& g = checked.findings.front();
    EXPECT_EQ(g.verdict, Verdict::failed) << factor;
    ASSERT_TRUE(f.origin);
    EXPECT_DOUBLE_EQ(g.ratio, f.origin->local_ratio) << factor;
    ASSERT_FALSE(g.diagnoses.empty()) << factor;
    EXPECT_EQ(g.diagnoses.front().cause, f.diagnoses.front().cause);
    EXPECT_EQ(g.diagnoses.front().parameters.factor, f.diagnoses.front().parameters.factor);
  }
  std::filesystem::remove_all(cases);
  isolated({}, {}, cases);
  EXPECT_FALSE(std::filesystem::exists(cases)) << "nothing is wrong, nothing is written";
}

TEST(Isolate, AValueThatChangesBetweenTwoModulesIsFound) {
  for (const DType d : {DType::float32, DType::bfloat16}) {
    const Report report = isolated({.between = 1.01, .dtype = d}, {.dtype = d});
    const Finding& f = at(report, "b", "input", "x");
    EXPECT_EQ(f.verdict, Verdict::failed);
    ASSERT_TRUE(f.origin);
    EXPECT_EQ(f.origin->kind, Kind::created);
    EXPECT_THAT(f.origin->reason,
                HasSubstr("it is not what a output y (step 0, micro-batch 0, forward) gave"));
    EXPECT_EQ(count_of_created(report), 1);
  }
}

TEST(Isolate, AGradientIsTheSumOfItsShares) {
  const Report report = isolated({.grad = 1.001});
  const Finding& f = at(report, "c", "grad", "weight");
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.origin->reason, HasSubstr("are not the sum of c grad weight.unreduced"));
  EXPECT_EQ(count_of_created(report), 1);
}

// The gradient of two ranks that recorded their shares of it, against one of a single rank.
Report diff_sum(const Tensor& total, const Tensor& first, const Tensor& second) {
  const Identity share{0, -1, Phase::backward, "e", "grad", "weight.unreduced", 0},
      whole{0, -1, Phase::backward, "e", "grad", "weight", 0};
  MemoryDump reference("r"), actual("a");
  reference.add(share, plus(first, 1, second));
  reference.add(whole, plus(first, 1, second));
  actual.mesh = {{"dp"}, {2}};
  actual.world_size = 2;
  actual.add_copy(share, 0, first).placements = {{Placement::Kind::partial}};
  actual.add_copy(share, 1, second).placements = {{Placement::Kind::partial}};
  actual.add_copy(whole, 0, total);
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  return diff(actual, reference, options);
}

Tensor changed(const Tensor& t, const std::function<void(Values&)>& change) {
  Values values = t.values();
  change(values);
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

// Both stages have a part of a tied embedding's gradient: each is summed over dp, and then both are added.
// What dp ranks recorded is the sum of theirs, of parts that nearly cancel here and there.
TEST(Isolate, PartsThatCancelInsideOfAShareAreRoundedToo) {
  const auto parts = [](std::uint64_t seed) {
    const Tensor first = normal_tensor(DType::float32, {64, 64}, seed);
    const Tensor second = changed(normal_tensor(DType::float32, {64, 64}, seed + 1), [&](Values& v) {
      for (std::size_t i = 0; i < v.size(); i += 64)
        v[i] = -first.value(static_cast<std::int64_t>(i)) * (1 + 1e-5);
    });
    return std::pair(first, second);
  };
  const auto [a0, b0] = parts(1);
  const auto [a1, b1] = parts(3);
  const auto created_with = [&, &a0 = a0, &a1 = a1, &b0 = b0, &b1 = b1](double factor, double one_more = 0) {
    const Tensor total = plus(plus(a0, 1, a1), factor, plus(b0, 1, b1));
    return count_of_created(
        diff_sum(changed(total, [&](Values& v) { v[65] += one_more; }), plus(a0, 1, b0), plus(a1, 1, b1)));
  };
  EXPECT_EQ(created_with(1), 0);
  EXPECT_EQ(created_with(1.001), 1);
  EXPECT_EQ(created_with(1, 1e-5), 1) << "of one element, in the whole no more than rounding";
}

// Two ranks' shares in bfloat16; of a token that is rare the gradient is small.
struct Shares {
  static constexpr std::int64_t rare = 640;  // where its row begins
  static Tensor drawn(std::uint64_t seed) {
    return changed(normal_tensor(DType::bfloat16, {64, 64}, seed), [](Values& v) {
      for (auto at = v.begin() + rare; at != v.begin() + rare + 64; ++at) *at /= 128;
    });
  }
  Tensor first = drawn(1), second = drawn(2);

  Report with(const std::function<void(Values&)>& fault) const {
    return diff_sum(changed(plus(first, 1, second), fault), first, second);
  }
};

void lose_rare_row(Values& sum) {
  std::fill_n(sum.begin() + Shares::rare, 64, 0);
}

TEST(Isolate, ASmallRowOfAGradientIsMissed) {
  const Shares shares;
  const auto keep_own = [&](Values& sum) {
    const Values own = shares.first.values();
    std::copy_n(own.begin() + Shares::rare, 64, sum.begin() + Shares::rare);
  };
  EXPECT_EQ(count_of_created(shares.with([](Values&) {})), 0);
  EXPECT_EQ(count_of_created(shares.with(lose_rare_row)), 1);
  EXPECT_EQ(count_of_created(shares.with(keep_own)), 1) << "not reduced";
}

TEST(Isolate, ANaNOfAShareIsPassedOn) {
  Shares shares;
  shares.first = changed(shares.first, [](Values& v) {
    v[5] = std::nan("");
    v[6] = std::numeric_limits<double>::infinity();
  });
  const Report report = shares.with([](Values&) {});
  EXPECT_EQ(at(report, "e", "grad", "weight").verdict, Verdict::passed)
      << at(report, "e", "grad", "weight").reason;
  EXPECT_EQ(count_of_created(shares.with(lose_rare_row)), 1);
}

// Errors of a rounding up or down at random, and one of all elements beneath them.
TEST(ScaleTest, TellsAFactorFromRoundings) {
  Random random(7);
  const Values g = random.normals(4096);
  const Values allowed(g.size(), 1);
  for (const double factor : {0.0, 1e-3, -1e-3}) {
    Values a = g;
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] *= 1 + factor + 2 * noise_of(DType::bfloat16) * (2 * random.uniform() - 1);
    ScaleTest test;
    test.actual = a;
    test.golden = g;
    test.allowed = allowed;
    test.columns = 64;
    test.terms = 64;
    test.unit_roundoff = 0x1p-24;
    test.stored_roundoff = 0x1p-8;
    const auto error = scale_error(test);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->within(), factor == 0) << factor << ": " << error->excess << " of " << error->allowed;
    EXPECT_NEAR(error->excess, factor, error->allowed);
    test.inputs = {g};
    test.inputs[0][5] = test.inputs[0][9] = std::nan("");  // which the result hides
    EXPECT_TRUE(scale_error(test));
  }
}

}  // namespace
}  // namespace assay::isolate_test
