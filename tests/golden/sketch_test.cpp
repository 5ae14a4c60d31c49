// Sketches against those of an implementation in numpy (the vectors), against each other, and against the
// formulas of their variance.
#include "assay/golden/sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/golden/sketcher.h"
#include "instruction_sets.h"

namespace assay {
namespace {

// Integers from -128 to 128: sums of them are exact.
Tensor integers(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<std::int64_t>(i * 2654435761 % 257) - 128);
  return {shape, std::span<const float>(values)};
}

Tensor normal(const Shape& shape, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = draw(random);
  return {shape, std::span<const double>(values)};
}

Tensor box_of(const Tensor& t, const Shape& offsets, const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * t.shape()[d];
  std::int64_t at = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) at += offsets[d] * strides[d];
  return gather_view(t, shape, strides, at);
}

double weighted_sum(const Sketch& s) {
  double sum = 0;
  for (std::size_t i = 0; i < s.values.size(); ++i) sum += s.values[i] * static_cast<double>(i % 97 + 1);
  return sum;
}

bool same_bits(const Sketch& a, const Sketch& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(double)) == 0 &&
         a.square == b.square && a.peak == b.peak && a.fingerprint == b.fingerprint;
}

void expect_close(const Sketch& a, const Sketch& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  const double size = std::sqrt(static_cast<double>(element_count(a.shape)));
  for (std::size_t i = 0; i < a.values.size(); ++i) ASSERT_NEAR(a.values[i], b.values[i], 1e-14 * size) << i;
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.peak, b.peak);
}

TEST(Sketch, HasTheValuesOfNumpy) {
  EXPECT_EQ(sign_bits(7, HashAxis::row, 0), 0xf221dda2ab2686a8);
  const struct {
    Shape shape;
    std::int64_t grid_rows, grid_columns;
    double sum;
    std::vector<double> first;
    std::uint64_t fingerprint;
  } vectors[] = {{{7, 5, 40}, 4, 4, 71086, {-265, 931, -241}, 0x65cd7ba084b06c80},
                 {{3, 700}, 1, 16, 920590, {-67, 427, 99}, 0x387044abfa7aed2f},
                 {{700, 3}, 16, 1, -799484, {-173, 803, -349}, 0xe25eb3a938f4b36f},
                 {{2000}, 1, 16, 1598486, {120, 410, 590}, 0xeecf966a631cc003},
                 {{64, 64}, 4, 4, -266089, {1462, -988, 186}, 0x4f8e3e488994fe5c},
                 {{1, 300}, 1, 16, 103485, {50, 300, -268}, 0x996e500eba24436d},
                 {{300, 1}, 16, 1, -219699, {120, -284, -66}, 0x85768595e7154ba9}};
  for (const auto& v : vectors) {
    SCOPED_TRACE(to_string(v.shape));
    const Sketch s = sketch_of(integers(v.shape));
    EXPECT_EQ(s.spec.grid_rows, v.grid_rows);
    EXPECT_EQ(s.spec.grid_columns, v.grid_columns);
    EXPECT_EQ(std::vector<double>(s.values.begin(), s.values.begin() + 3), v.first);
    EXPECT_EQ(weighted_sum(s), v.sum);
    EXPECT_EQ(s.fingerprint, v.fingerprint);
  }
}

TEST(Sketch, HasOtherSizesAndSeeds) {
  std::vector<float> ramp(2000);
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i);
  const Sketch s = sketch_of(Tensor({40, 50}, std::span<const float>(ramp)), {8, 8, 80, 5});
  EXPECT_EQ(weighted_sum(s), -28644285);
  EXPECT_EQ(s.fingerprint, 0xb5e44d679cecfad5);
}

TEST(Sketch, PrintsBitsOfEveryKind) {
  const std::vector<float> few = {1, 2, 3, -4};
  const Tensor floats({2, 2}, std::span<const float>(few));
  EXPECT_EQ(fingerprint_of_bits(floats), 0x40469f9ff9b87b5c);
  for (const DType narrow : {DType::bfloat16, DType::float8_e4m3fn, DType::float64})
    EXPECT_EQ(fingerprint_of_bits(Tensor::from_values(narrow, {2, 2}, floats.values())), 0x40469f9ff9b87b5c);
  const std::vector<std::int64_t> large = {-1, 2, std::int64_t{1} << 62};
  EXPECT_EQ(fingerprint_of_bits(Tensor::from_indices({3}, large)), 0x6a1d2a1a78c0a439);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> special = {nan, infinity, -0.0, 0.0}, other = {-nan, infinity, -0.0, 0.0},
                            plus = {nan, infinity, 0.0, 0.0};
  const auto print = [](const std::vector<double>& v) {
    return fingerprint_of_bits(Tensor({4}, std::span<const double>(v)));
  };
  EXPECT_EQ(print(special), 0xa51ad9ca877be7a7);
  EXPECT_EQ(print(other), print(special));
  EXPECT_NE(print(plus), print(special));
}

TEST(Sketch, AddsUpOverShards) {
  const Shape shape = {6, 10, 33};
  const Tensor whole = normal(shape, 1);
  const Sketch expected = sketch_of(whole);
  const std::vector<std::vector<std::pair<Shape, Shape>>> cuts = {
      {{{0, 0, 0}, {1, 10, 33}}, {{1, 0, 0}, {5, 10, 33}}},
      {{{0, 0, 0}, {6, 7, 33}}, {{0, 7, 0}, {6, 3, 33}}},
      {{{0, 0, 0}, {6, 10, 17}}, {{0, 0, 17}, {6, 10, 16}}},
      // A range of the flat tensor: a row's end, whole rows, a row's beginning.
      {{{0, 0, 0}, {1, 1, 20}}, {{0, 0, 20}, {1, 1, 13}}, {{0, 1, 0}, {1, 9, 33}}, {{1, 0, 0}, {5, 10, 33}}}};
  for (const auto& cut : cuts) {
    Sketch sum = Sketch::nothing(shape, {});
    Sketcher together(shape, {});
    for (const auto& [offsets, extents] : cut) {
      const Tensor box = box_of(whole, offsets, extents);
      Sketcher one(shape, {});
      one.add(box, offsets);
      sum.join(one.result());
      together.add(box, offsets);
    }
    expect_close(sum, expected);
    expect_close(together.result(), expected);
    EXPECT_NEAR(sum.square.value(), expected.square.value(), 1e-12 * *expected.square);
  }
}

TEST(Sketch, ShardsOfIntegersAddUpExactly) {
  const Tensor whole = integers({130, 70});
  for (const std::int64_t at : {1, 63, 129}) {
    Sketcher a({130, 70}, {}), b({130, 70}, {});
    a.add(box_of(whole, {0, 0}, {at, 70}), {0, 0});
    b.add(box_of(whole, {at, 0}, {130 - at, 70}), {at, 0});
    Sketch sum = b.result();
    sum.join(a.result());
    EXPECT_TRUE(same_bits(sum, sketch_of(whole)));
  }
}

TEST(Sketch, ThreadsAndInstructionSetsChangeNoBit) {
  for (const Shape& shape : {Shape{700, 333}, Shape{200'000}, Shape{3, 70'000}}) {
    const Tensor t = normal(shape, 2);
    const Sketch expected = sketch_of(t);
    const ThreadScope threads(4);
    EXPECT_TRUE(same_bits(sketch_of(t), expected));
    for_each_instruction_set(
        [&](const char* name) { EXPECT_TRUE(same_bits(sketch_of(t), expected)) << name; });
  }
}

TEST(Sketch, IsLinear) {
  const Tensor a = integers({40, 50}), b = integers({50, 40}).reshaped({40, 50});
  std::vector<double> values = a.values();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= 3 * b.value(static_cast<std::int64_t>(i));
  Sketch sum = sketch_of(a);
  sum.add(sketch_of(b), -3);
  EXPECT_EQ(sum.values, sketch_of(Tensor({40, 50}, std::span<const double>(values))).values);
  EXPECT_FALSE(sum.square || sum.peak || sum.fingerprint);
}

TEST(Sketch, TheCoarserIsInTheFiner) {
  const Tensor t = integers({90, 80});
  const Sketch fine = sketch_of(t, {8, 8, 32});
  for (const SketchSpec& spec : {SketchSpec{4, 4, 16}, SketchSpec{8, 8, 8}, SketchSpec{1, 2, 32}})
    EXPECT_EQ(fine.coarsened(spec).values, sketch_of(t, spec).values);
  EXPECT_EQ(common_spec({8, 4, 16}, {4, 4, 32}), (SketchSpec{4, 4, 16}));
  EXPECT_THROW(fine.coarsened({3, 8, 32}), Error);
  EXPECT_THROW(fine.coarsened({8, 8, 64}), Error);
  EXPECT_THROW(common_spec({}, {4, 4, 16, 1}), Error);
}

TEST(Sketch, CountsWhatIsNotFinite) {
  std::vector<double> values = integers({20, 20}).values();
  std::vector<double> finite = values;
  const double odd[] = {infinity, -infinity, -infinity, std::numeric_limits<double>::quiet_NaN()};
  for (std::size_t i = 0; i < 4; ++i) {
    values[90 * i] = odd[i];
    finite[90 * i] = 0;
  }
  const Sketch s = sketch_of(Tensor({20, 20}, std::span<const double>(values)));
  EXPECT_EQ(s.nan, 1);
  EXPECT_EQ(s.positive_infinities, 1);
  EXPECT_EQ(s.negative_infinities, 2);
  EXPECT_EQ(s.values, sketch_of(Tensor({20, 20}, std::span<const double>(finite))).values);
  EXPECT_EQ(s.peak, 128);
  const std::vector<double> huge(400, 1e200);  // whose squares leave the range
  const Sketch t = sketch_of(Tensor({20, 20}, std::span<const double>(huge)));
  EXPECT_EQ(t.nan + t.infinities(), 0);
  EXPECT_EQ(t.square, infinity);
  EXPECT_EQ(t.peak, 1e200);
}

TEST(Sketch, TakesEveryShape) {
  EXPECT_EQ(sketch_of(Tensor(DType::float32, {})).values.size(), 256u);
  EXPECT_EQ(sketch_of(Tensor(DType::float32, {0, 5})).square, 0);
  EXPECT_EQ(sketch_of(Tensor(DType::float32, {5, 0})).fingerprint, 0u);
  EXPECT_FALSE(is_sketched({16, 16}, {}));
  EXPECT_TRUE(is_sketched({257}, {}));
  Sketcher s({4, 4}, {});
  EXPECT_THROW(s.add(Tensor(DType::float32, {2, 4}), {3, 0}), Error);
  EXPECT_THROW(s.add(Tensor(DType::float32, {2}), {0}), Error);
  EXPECT_THROW(check_spec({0, 4, 16}), Error);
  EXPECT_THROW(check_spec({1 << 15, 1 << 15, 1}), Error);
}

TEST(Sketch, OneElementIsExact) {
  std::vector<double> values(50'000, 0.0);
  values[31'234] = -3.5;
  const Sketch s = sketch_of(Tensor({100, 500}, std::span<const double>(values)));
  EXPECT_EQ(s.estimated_norm(), 3.5);
  const std::vector<double> blocks = s.norms_of_blocks();
  EXPECT_EQ(std::ranges::count(blocks, 3.5), 1);
  EXPECT_EQ(std::ranges::find(blocks, 3.5) - blocks.begin(), 2 * 4 + 1);  // row 62, column 234
}

// Errors as they occur: everywhere without structure, a row, a column, an outer product.
Tensor error_of(int kind, const Shape& shape, unsigned seed) {
  if (kind == 0) return normal(shape, seed);
  const Tensor u = normal({shape[0]}, seed), v = normal({shape[1]}, seed + 1);
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      const double of_row = kind == 1 ? (i == 3 ? 1.0 : 0.0) : kind == 2 ? 1.0 : u.value(i);
      const double of_column = kind == 2 ? (c == 5 ? 1.0 : 0.0) : v.value(c);
      values.push_back(kind == 2 ? u.value(i) * of_column : of_row * of_column);
    }
  }
  return {shape, std::span<const double>(values)};
}

// How often the truth lies outside of its interval, of so many draws: 0.1 % is promised. By Poisson's
// distribution with mean 0.001 n, `most` or more of 300 or 10,000 draws are as seldom as 1e-6.
void expect_intervals_hold(int draws, int most) {
  for (int kind = 0; kind < 4; ++kind) {
    int outside = 0;
    double squares = 0;
    for (int draw = 0; draw < draws; ++draw) {
      const Tensor t = error_of(kind, {48, 40}, static_cast<unsigned>(2 * draw + 1));
      const Sketch s = sketch_of(t, {4, 4, 16, static_cast<std::uint64_t>(draw)});
      const double truth = std::sqrt(*s.square);
      const SketchDistance d = interval(s.estimated_norm(), s);
      outside += d.low <= truth && truth <= d.high ? 0 : 1;
      squares += std::pow(d.estimate / truth, 2) / draws;
    }
    EXPECT_LT(outside, most) << "kind " << kind;
    // Unbiased: the mean's standard error is sqrt(2 / (nu draws)) at most, nu = 25.6.
    EXPECT_NEAR(squares, 1, 5 * std::sqrt(2 / (25.6 * draws))) << "kind " << kind;
  }
}

TEST(Sketch, IntervalsHold) {
  const char* many = std::getenv("ASSAY_DRAWS");
  many == nullptr ? expect_intervals_hold(300, 6) : expect_intervals_hold(std::atoi(many), 28);
}

TEST(Sketch, DegreesOfFreedom) {
  const Sketch s = Sketch::nothing({48, 40}, {});
  EXPECT_NEAR(degrees_of_freedom(s), 25.6, 1e-12);
  EXPECT_NEAR(degrees_of_freedom(Sketch::nothing({4000}, {1, 16})), 256, 1e-12);
  const SketchDistance d = interval(1, s);
  EXPECT_NEAR(d.low, 0.68, 0.005);
  EXPECT_NEAR(d.high, 1.77, 0.02);
}

}  // namespace
}  // namespace assay
