#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "assay/align/forward.h"
#include "assay/align/initial.h"
#include "assay/align/tape.h"

/// What Python computed, as tests/data/replay keeps it: losses, and sums of tensors.
namespace assay::align {

constexpr Batch batch = {2, 12};
// Relative to the sum of the magnitudes: 24 tokens and a few thousand terms of 2^-53 each, and the issue's.
constexpr double allowed = 1e-10;

inline nlohmann::json expected(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(std::string(ASSAY_TEST_DATA) + "/replay/" + file));
}

/// The first micro-batch of a model before its first step.
inline Tape tape_of(const Model& model) {
  const std::int64_t vocabulary = model.vocabulary;
  return {Level::fp64, initial_parameter, [vocabulary](const std::string& name, const Shape&) {
            return initial_indices(name, batch, vocabulary);
          }};
}

/// @param what  what the weights of the second sum are drawn from
inline void expect_sums(const std::string& what, const Tensor& tensor, const nlohmann::json& want) {
  const std::vector<double> with = drawn(what, tensor.size()), values = tensor.values();
  double sum = 0, weighed = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    weighed += values[i] * with[i];
  }
  const double scale = want[2].get<double>();
  EXPECT_GT(scale, 0) << what;
  EXPECT_NEAR(sum, want[0].get<double>(), allowed * scale) << what;
  EXPECT_NEAR(weighed, want[1].get<double>(), allowed * scale) << what;
}

/// Of every parameter behind tape.backward.
inline void expect_gradients(const Tape& tape, const nlohmann::json& want) {
  std::size_t compared = 0;
  for (const auto& [name, value] : tape.parameters()) {
    const Tensor* gradient = tape.gradient(value);
    ASSERT_EQ(gradient != nullptr, want.contains(name)) << name;
    if (gradient == nullptr) continue;
    expect_sums("gradient of " + name, *gradient, want[name]);
    ++compared;
  }
  EXPECT_EQ(compared, want.size());
}

}  // namespace assay::align
