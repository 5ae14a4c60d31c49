// Causes: a name and a sentence for each, and numbers that programs can read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "assay/compare/report/json_diagnosis.h"
#include "assay/compare/result/diagnosis.h"

namespace assay::cause_test {
namespace {

TEST(CauseRows, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (int c = 0; c < static_cast<int>(Cause::end); ++c) {
    const std::string_view own = name(static_cast<Cause>(c));
    EXPECT_TRUE(names.insert(own).second) << own;
    EXPECT_FALSE(own.empty());
    EXPECT_TRUE(std::ranges::all_of(own, [](char x) {
      return x == '_' || (x >= 'a' && x <= 'z') || (x >= '0' && x <= '9');
    })) << own;
  }
}

struct Sample {
  Diagnosis diagnosis;
  std::string_view sentence;
};

const Sample samples[] = {
    {{Cause::sign}, "actual = -reference: the sign is flipped"},
    {{Cause::factor, {.factor = 0.25, .factor_names = {"1/dp", "1/pp"}}},
     "actual = 0.25 x reference (0.25 = 1/dp or 1/pp)"},
    {{Cause::factor, {.factor = -4, .factor_names = {"dp"}, .elements = 3, .of = 7}},
     "3 of 7 elements are -4 x reference (-4 = -dp), all others pass"},
    {{Cause::factor, {.factor = 0.5, .factor_names = {"1/tp"}, .evidence = 19.7}},
     "actual = 0.5 x reference (0.5 = 1/tp) (of one number: 20 bits of evidence)"},
    {{Cause::factor, {.factor = 2, .factor_names = {"tp"}, .against = "rms_norm"}},
     "actual = 2 x reference (2 = tp) (against what rms_norm makes of its own inputs)"},
    {{Cause::factor, {.factor = 1.001, .uncertainty = 1e-5, .op = "linear"}, 0.5},
     "actual = 1.001 x what linear makes of its own inputs (+- 1e-05); error/allowed 0.5"},
    {{Cause::row_factors, {.factors = {0.5, 2}, .elements = 64, .of = 64, .along = "row"}},
     "every row is a multiple of the reference's: all 64 by factors of their own from 0.5 to 2"},
    {{Cause::row_factors,
      {.factor_names = {"tp", ""},
       .factors = {2, 3},
       .elements = 2,
       .of = 64,
       .along = "row",
       .positions = {7, 9}}},
     "every row is a multiple of the reference's: [7] times 2 = tp, [9] times 3, the others are right"},
    {{Cause::row_factors, {.factor = 3, .elements = 9, .of = 64, .along = "column"}},
     "every column is a multiple of the reference's: 9 of 64 times 3, the others are right"},
    {{Cause::nonfinite, {.elements = 8, .of = 64, .how = "NaN"}},
     "8 of 64 elements are NaN: nothing recorded before it is, in this micro-batch"},
    {{Cause::nonfinite, {.elements = 8, .of = 64, .tensor = "lm_head output y", .how = "Inf"}},
     "8 of 64 elements are Inf: as are those of lm_head output y, before it"},
    {{Cause::not_normalized, {.factors = {0.31, 0.77}, .reference_value = 1}},
     "every row is the reference's before it is divided by its sum: rows of the reference sum to 1, these to "
     "0.31 "
     "to 0.77"},
    {{Cause::zeros}, "every element is zero"},
    {{Cause::zeros, {.elements = 2, .of = 9}},
     "2 of 9 elements are outside, all of them exactly zero where the reference is not"},
    {{Cause::overflow, {.elements = 5, .dtype = DType::float16, .limit = HUGE_VAL, .from = 70000}},
     "5 elements are infinite where the reference is beyond float16's largest number 65504 (from 70000 on), "
     "and "
     "none elsewhere"},
    {{Cause::saturated, {.elements = 5, .limit = 7}},
     "5 elements are +-7, the largest that occurs, where the reference is larger: clipped there"},
    {{Cause::precision,
      {.dtype = DType::float16,
       .or_dtype = DType::tfloat32,
       .actual_dtype = DType::float32,
       .reference_dtype = DType::float32,
       .rounding = Rounding::toward_zero,
       .flushes = true,
       .share = 0.999}},
     "float32 in name, but every element is a float16 or tfloat32 number: the reference truncated to it, "
     "subnormals flushed to zero, (99.9% of the elements bit for bit)"},
    {{Cause::shifted, {.along = "rows", .shift = -2, .value = 0}},
     "the rows are shifted by -2: index i holds the reference's i + 2; the last 2 are zero"},
    {{Cause::partial_sum, {.axis = "tp"}, 0.1},
     "their sum is the reference (error/allowed 0.1): each rank holds a partial sum, the all-reduce over tp "
     "is "
     "missing"},
    {{Cause::stale, {.step = 3, .micro_batch = 1}, 0},
     "it is the reference's tensor of step 3, micro-batch 1 (error/allowed 0)"},
    {{Cause::added,
      {.factor = -0.01, .term = "its parameter before the step", .decays = true, .tensor = "w"},
      0.2},
     "actual = reference - 0.01 x its parameter before the step (w): weight decay that the reference does "
     "not "
     "have; error/allowed 0.2"},
    {{Cause::weights, {.micro_batches = {0, 1, 2}, .counts = {0, 1. / 3, 1}}, 0.5},
     "micro-batches 0, 1, 2 count 0, 0.3333, 1 times, each once in the reference; error/allowed 0.5"},
    {{Cause::attribute,
      {.op = "rms_norm", .actual_attributes = "no weight", .reference_attributes = "eps = 1e-6"},
      0.5},
     "it is rms_norm with no weight, where the reference has eps = 1e-6; error/allowed 0.5"},
    {{Cause::operation, {.op = "gelu", .reference_op = "silu"}, 0.5},
     "it is gelu, where the reference has silu; error/allowed 0.5"},
    {{Cause::weight_decay,
      {.step = 1, .later = true, .parameters = "w", .value = 0.1, .how = "weight decay is 0.1"},
      0.5},
     "weight decay is 0.1; w (step 1 and later; error/allowed 0.5)"},
};

TEST(CauseRows, AreSaidInOneSentence) {
  for (const Sample& s : samples) EXPECT_EQ(sentence(s.diagnosis), s.sentence);
}

TEST(CauseRows, AgreeWithAnExpectedOneInWhatItStates) {
  const Diagnosis found = {
      Cause::factor, {.factor = 0.33334, .factor_names = {"1/dp", "1/micro-batches"}}, 0.5};
  EXPECT_TRUE(agrees(found, found));
  EXPECT_TRUE(agrees(found, {Cause::factor}));
  EXPECT_TRUE(agrees(found, {Cause::factor, {.factor = 1. / 3}}));
  EXPECT_TRUE(agrees(found, {Cause::factor, {.factor_names = {"1/micro-batches"}}}));
  EXPECT_FALSE(agrees(found, {Cause::factor, {.factor = 0.334}}));
  EXPECT_FALSE(agrees(found, {Cause::factor, {.factor_names = {"dp"}}}));
  EXPECT_FALSE(agrees(found, {Cause::factor, {.elements = 1}})) << "what is not known does not agree";
  EXPECT_FALSE(agrees(found, {Cause::sign}));
  const Diagnosis counted = {Cause::weights, {.counts = {0.0277778, 0.166667, 1}}, 0};
  EXPECT_TRUE(agrees(counted, {Cause::weights, {.counts = {1. / 36, 1. / 6, 1}}}));
  EXPECT_FALSE(agrees(counted, {Cause::weights, {.counts = {1. / 36, 1. / 6}}}));
}

TEST(CauseRows, HaveTheirNumbersInJson) {
  const auto j = json_diagnosis(samples[1].diagnosis);
  EXPECT_EQ(j["cause"], "factor");
  EXPECT_EQ(j["text"], samples[1].sentence);
  EXPECT_EQ(j["parameters"].dump(), R"({"factor":0.25,"factor_names":["1/dp","1/pp"]})");
  const auto limit = json_diagnosis(
      {Cause::overflow, {.elements = 5, .dtype = DType::float16, .limit = HUGE_VAL, .from = 7e4}});
  EXPECT_EQ(limit["parameters"]["limit"], "inf");
  EXPECT_EQ(limit["parameters"]["dtype"], "float16");
  EXPECT_FALSE(limit["parameters"].contains("factor"));
}

}  // namespace
}  // namespace assay::cause_test
