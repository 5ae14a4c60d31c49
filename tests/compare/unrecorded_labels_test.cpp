// A loss of labels that were given to no module: what a program takes of a longer sequence, or of a data set.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::unrecorded_labels_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t places = 24, length = 12, classes = 11;

struct Program {
  bool foresees = false;     ///< targets are the tokens behind; else nobody knows
  std::int64_t padding = 0;  ///< places without a target, at the end
  bool stores = false;       ///< logits are bfloat16, and the loss keeps its steps in it
  Attributes attributes = {};
};

// The gradient of a loss that keeps its logarithms in bfloat16; those of the sides are rounded elsewhere.
Tensor in_steps(const Tensor& logits, const std::vector<std::int64_t>& targets, bool is_actual) {
  Values gradient;
  for (std::int64_t i = 0; i < places; ++i) {
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(logits.value(i * classes + c));
    for (std::int64_t c = 0; c < classes; ++c) {
      const double exact = logits.value(i * classes + c) - std::log(sum),
                   kept = round_to(DType::bfloat16, exact * (is_actual ? 1 + 0x1p-11 : 1)),
                   target = targets[static_cast<std::size_t>(i)] == c ? 1 : 0;
      gradient.push_back(round_to(DType::bfloat16, 0.25 / places * (std::exp(kept) - target)));
    }
  }
  return Tensor::from_values(DType::bfloat16, {places, classes}, gradient);
}

// @param others  places whose label is another one on the actual side
auto recorded(const Program& p, std::int64_t others = 0) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      std::vector<std::int64_t> longer, tokens, targets;
      for (std::int64_t i = 0; i < 2 * (length + 1); ++i)
        longer.push_back((7 * i + 5 * mb + i * i) % classes);
      for (std::int64_t i = 0; i < places; ++i) {
        const std::int64_t at = i / length * (length + 1) + i % length;
        tokens.push_back(longer[static_cast<std::size_t>(at)]);
        const std::int64_t label =
            p.foresees ? longer[static_cast<std::size_t>(at + 1)] : (5 * i + mb) % classes;
        targets.push_back(i >= places - p.padding ? -100 : (label + (is_actual && i < others)) % classes);
      }
      const DType dtype = p.stores ? DType::bfloat16 : DType::float32;
      const Tensor logits = normal_tensor(dtype, {places, classes}, 31 + static_cast<std::uint64_t>(mb)),
                   grad_y = Tensor::from_values(DType::float32, {}, Values{0.25});
      const auto made = compute_golden(
          find_operator("cross_entropy"),
          std::vector<NamedTensor>{
              {"logits", logits}, {"target", Tensor::from_indices({places}, targets)}, {"grad_y", grad_y}},
          p.attributes, Level::fp64);
      const Shape shape = {2, length, classes};
      const Tensor gradient = output_named(made, "grad_logits").reshaped(shape);
      d.add({0, mb, f, "embed", "input", "input", 0}, Tensor::from_indices({2, length}, tokens)).op =
          "Embedding";
      d.add({0, mb, f, "head", "output", "y", 0}, logits.reshaped(shape));
      d.add({0, mb, f, "loss", "loss", "lm", 0}, single(output_named(made, "loss")));
      d.add({0, mb, b, "head", "grad_output", "y", 0},
            p.stores ? in_steps(logits, targets, is_actual).reshaped(shape)
                     : noisy(single(gradient), is_actual ? 3 : 4));
    }
  };
}

class UnrecordedLabels : public testing::TestWithParam<Program> {};

TEST_P(UnrecordedLabels, ShowInTheGradientAndOthersAreNamed) {
  const Report right = isolated(recorded(GetParam()));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "head", "grad_output").unjudged, "");
  EXPECT_EQ(finding(right, "loss", "loss").unjudged, "");
  const Report wrong = isolated(recorded(GetParam(), 2));
  EXPECT_EQ(wrong.exit_status(), 1);
  const Finding& gradient = finding(wrong, "head", "grad_output");
  ASSERT_FALSE(gradient.diagnoses.empty());
  EXPECT_EQ(gradient.diagnoses.front().cause, Cause::wrong_tokens);
  EXPECT_EQ(gradient.diagnoses.front().parameters.how,
            "its targets are others than the reference's at 2 of 24 places");
}

INSTANTIATE_TEST_SUITE_P(Programs, UnrecordedLabels,
                         testing::Values(Program{}, Program{.foresees = true}, Program{.padding = 3},
                                         Program{.stores = true},
                                         Program{.attributes = {{"label_smoothing", 0.1}}}));

// Everything may have been left out of a loss: no tokens show.
TEST(UnrecordedLabels, AreNotSeenInAGradientOfZeros) {
  const Report report = isolated([](MemoryDump& d, bool is_actual) {
    recorded({.foresees = true})(d, is_actual);
    if (is_actual)
      d.replace(d.records.size() - 1,
                Tensor::from_values(DType::float32, {2, length, classes}, Values(places * classes, 0)));
  });
  for (const Finding& found : report.findings) {
    for (const Diagnosis& d : found.diagnoses) EXPECT_NE(d.cause, Cause::wrong_tokens);
  }
  EXPECT_EQ(report.exit_status(), 1);
}

// A gradient of anything else shows no labels.
TEST(UnrecordedLabels, AGradientThatIsNoLossIsNotTakenForOne) {
  const Report report = isolated([](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(mb);
      d.add({0, mb, f, "head", "output", "y", 0}, normal_tensor(DType::float32, {places, 2}, 31 + seed));
      d.add({0, mb, b, "head", "grad_output", "y", 0},
            noisy(normal_tensor(DType::float32, {places, 2}, 41 + seed), is_actual ? 3 : 4));
    }
  });
  EXPECT_NE(finding(report, "head", "grad_output").unjudged, "");
}

}  // namespace
}  // namespace assay::unrecorded_labels_test
