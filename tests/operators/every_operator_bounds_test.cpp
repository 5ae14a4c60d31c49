#include <fmt/format.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "assay/operators/engine/certified.h"
#include "assay/operators/engine/lane_rows.h"
#include "every_operator.h"
#include "instruction_sets.h"

namespace assay::every_operator_bounds_test {
namespace {

TEST_P(EveryOperator, Float64IsWithinItsBoundOfTheTruth) {
  for (const CallShape& call : calls()) {
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
  // The bound is for the running sums of chunked kernels (chunked_decays.h), here added up over tokens; what
  // is tried is the recurrence, which loses less.
  const std::set<std::string> of_chunks = {"grad_A_log", "grad_dt_bias"};
  constexpr double least_use_of_chunks = 0.005;
  struct Use {
    double ratio = 0, share = 0;
    bool exact = true;
  };
  std::map<std::string, Use> uses;
  for (const CallShape& call : calls()) {
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
    EXPECT_GE(use.ratio, of_chunks.contains(name) ? least_use_of_chunks : least_use) << name;
    EXPECT_LE(use.share, largest_share) << name;
  }
}

// The error that a proof takes its own float64 arithmetic to have.
TEST_P(EveryOperator, OwnErrorsCoverTheTruth) {
  const ErrorModel own{.unit_roundoff = 0x1p-53, .min_subnormal = 0x1p-1074, .own = true};
  for (const CallShape& call : calls()) {
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

// What a quick model leaves out only makes errors smaller: what is within them is within the whole.
TEST_P(EveryOperator, QuickErrorsAreNoMoreThanTheWhole) {
  for (const double stored : {0., 0x1p-9}) {
    ErrorModel device = float32_model;
    device.stored_roundoff = stored;
    for (const CallShape& call : calls()) {
      const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 8);
      device.quick = false;
      const auto whole = bounds(op, inputs, call.attributes, device);
      device.quick = true;
      for (const auto& [name, values] : bounds(op, inputs, call.attributes, device)) {
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_LE(values[i].error, whole.at(name)[i].error) << name << " at " << i;
      }
    }
  }
}

// Both are float64 of one computation: apart by no more than twice what float64 loses of float32's bound.
TEST_P(EveryOperator, ABoundHoldsTheGoldenValues) {
  constexpr double share = 2 * 0x1p-53 / 0x1p-24;
  for (const bool quick : {false, true}) {
    ErrorModel device = float32_model;
    device.quick = quick;
    for (const CallShape& call : calls()) {
      const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 9);
      const auto golden = compute_golden(op, inputs, call.attributes, Level::fp64),
                 whole = compute_bound(op, inputs, call.attributes, float32_model);
      const auto [values, errors] = compute_golden_and_bound(op, inputs, call.attributes, device);
      ASSERT_EQ(values.size(), golden.size());
      for (std::size_t k = 0; k < golden.size(); ++k) {
        EXPECT_EQ(values[k].name, golden[k].name);
        EXPECT_EQ(errors[k].name, golden[k].name);
        if (!is_float(golden[k].tensor.dtype())) continue;
        ASSERT_EQ(values[k].tensor.shape(), golden[k].tensor.shape());
        for (std::int64_t i = 0; i < golden[k].tensor.size(); ++i)
          EXPECT_LE(std::abs(values[k].tensor.value(i) - golden[k].tensor.value(i)),
                    share * whole[k].tensor.value(i))
              << golden[k].name << " at " << i;
      }
    }
  }
}

// All rows, as blocks of them make them.
std::vector<LaneRows::Made> all_of(const LaneRows& rows) {
  std::vector<LaneRows::Made> all(rows.outputs().size());
  LaneRows::Room room;
  for (std::int64_t begin = 0; begin < rows.rows(); begin += rows.rows_of_block()) {
    const auto made = rows.compute(begin, std::min(begin + rows.rows_of_block(), rows.rows()), room);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (rows.outputs()[k].row == 0 && begin > 0) {
        LaneRows::add(all[k], made[k]);
        continue;
      }
      all[k].values.insert(all[k].values.end(), made[k].values.begin(), made[k].values.end());
      all[k].errors.insert(all[k].errors.end(), made[k].errors.begin(), made[k].errors.end());
      all[k].squares = made[k].squares;
    }
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (rows.outputs()[k].row == 0) rows.complete(all[k]);
  }
  return all;
}

// Rows side by side: no error is more than the whole one, and the values are those of float64.
TEST_P(EveryOperator, RowsSideBySideAreWithinTheWhole) {
  constexpr double share = 0x1p-53 / 0x1p-24;
  for (const double stored : {0., 0x1p-9}) {
    ErrorModel device = float32_model;
    device.stored_roundoff = stored;
    for (const Fill fill : {Fill::random, Fill::special}) {
      for (const CallShape& call : calls()) {
        const auto inputs = generate_inputs(op, call, fill, DType::float32, 8);
        const auto rows = LaneRows::of(op, inputs, call.attributes, device);
        if (!rows) continue;
        const auto golden = compute_golden(op, inputs, call.attributes, Level::fp64),
                   whole = compute_bound(op, inputs, call.attributes, device);
        const std::vector<LaneRows::Made> made = all_of(*rows);
        for (std::size_t k = 0; k < made.size(); ++k) {
          const std::string_view name = rows->outputs()[k].arg->name;
          const std::vector<double> values = output_named(golden, name).values(),
                                    errors = output_named(whole, name).values();
          ASSERT_EQ(made[k].values.size(), values.size()) << name;
          for (std::size_t i = 0; i < values.size(); ++i) {
            if (std::isnan(errors[i])) continue;
            EXPECT_LE(made[k].errors[i], errors[i]) << name << " at " << i;
            if (fill == Fill::special) continue;
            EXPECT_LE(std::abs(made[k].values[i] - values[i]), share * errors[i]) << name << " at " << i;
          }
        }
      }
    }
  }
}

void expect_same_bits(std::span<const double> a, std::span<const double> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(double)), 0) << what;
}

// However many rows lie side by side: two, four or eight.
void expect_same_rows_on_all_instruction_sets(const Operator& op, const CallShape& call, Fill fill) {
  const auto inputs = generate_inputs(op, call, fill, DType::float32, 8);
  std::vector<LaneRows::Made> first;
  for_each_instruction_set([&](const char* set) {
    const auto rows = LaneRows::of(op, inputs, call.attributes, float32_model);
    if (!rows) return;
    const std::vector<LaneRows::Made> made = all_of(*rows);
    if (first.empty()) first = made;
    for (std::size_t k = 0; k < made.size(); ++k) {
      const std::string what = fmt::format("{} on {}", rows->outputs()[k].arg->name, set);
      expect_same_bits(made[k].values, first[k].values, what);
      expect_same_bits(made[k].errors, first[k].errors, what);
    }
  });
}

TEST_P(EveryOperator, RowsHaveTheSameBitsOnAllInstructionSets) {
  for (const Fill fill : {Fill::random, Fill::special}) {
    for (const CallShape& call : calls()) expect_same_rows_on_all_instruction_sets(op, call, fill);
  }
}

// More rows than lanes, and no multiple of them; of more than one block, too.
TEST(LaneRows, HaveTheSameBitsOnAllInstructionSets) {
  for (const auto& [name, sizes] :
       {std::pair("softmax", "A=37,C=21,B="), std::pair("softmax", "A=21,C=1030,B="),
        std::pair("rms_norm", "N=37,C=19"), std::pair("layer_norm", "N=43,C=1000"),
        std::pair("silu", "N=3001")}) {
    const Example example = {sizes};
    for (const Fill fill : {Fill::random, Fill::special})
      expect_same_rows_on_all_instruction_sets(find_operator(name), parse_call(example), fill);
  }
}

TEST(LaneRows, AreThoseOfTheOperatorsThatSaySo) {
  const Operator& softmax = find_operator("softmax");
  const CallShape call = parse_call({"A=4,C=15,B="});
  const auto inputs = generate_inputs(softmax, call, Fill::random, DType::float32, 1);
  EXPECT_TRUE(LaneRows::of(softmax, inputs, call.attributes, float32_model));
  ErrorModel tree = float32_model;
  tree.accumulator = parse_accumulator("float32,tree");
  EXPECT_FALSE(LaneRows::of(softmax, inputs, call.attributes, tree));
  EXPECT_FALSE(LaneRows::of(find_operator("exp"), {}, {}, float32_model));
}

// Certified values are the truth rounded to float32, once; every one of them is proved but for ties.
TEST_P(EveryOperator, CertifiedIsCorrectlyRounded) {
  for (const CallShape& call : calls()) {
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

TEST_P(EveryOperator, ExactFillNeedsNoTolerance) {
  if (op.exact_fill == ExactFill::none) GTEST_SKIP() << op.name << " declares no exact fill";
  for (CallShape call : calls()) {
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

}  // namespace
}  // namespace assay::every_operator_bounds_test
