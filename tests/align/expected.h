#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "assay/align/forward/forward.h"
#include "assay/align/step/initial.h"
#include "assay/align/tape/tape.h"

/// What Python computed, as tests/data/replay keeps it: losses, and sums of tensors.
namespace assay::align {

constexpr Batch batch = {2, 12};
// Relative to the sum of the magnitudes: 24 tokens and a few thousand terms of 2^-53 each, and the issue's.
constexpr double allowed = 1e-10;

inline nlohmann::json expected(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(std::string(ASSAY_TEST_DATA) + "/replay/" + file));
}

/// A micro-batch of a model before its first step, on a single device.
inline void on_tape(const Model& model, const Batch& of, std::int64_t number,
                    const std::function<void(Tape&)>& work, Precision precision = Precision::fp64) {
  run_ranks(1, [&](Communicator& alone) {
    const auto computes = arithmetic(precision);
    Tape tape(
        Ranks(alone, Mesh({}, 0), computes),
        [&](const Machine::NamedParameter& p) {
          return Tensor::from_values(computes->storage(), p.whole,
                                     initial_parameter(p.name, p.whole).values());
        },
        [&](const std::string& name) { return initial_indices(name, of, model.vocabulary, number); });
    work(tape);
  });
}

inline double total(const Tape& tape, const std::vector<Loss>& losses) {
  double sum = 0;
  for (const Loss& loss : losses) sum += loss.weight * tape.tensor(loss.value).value(0);
  return sum;
}

/// Of the sum of the losses.
inline void go_back(Tape& tape, const std::vector<Loss>& losses) {
  std::vector<Tape::Seed> seeds;
  for (const Loss& loss : losses)
    seeds.push_back({loss.value, Tensor::from_values(DType::float64, {}, std::vector{loss.weight})});
  tape.backward(seeds);
}

struct Sums {
  double plain = 0, weighed = 0;
};
/// @param what  what the weights of the second sum are drawn from
inline Sums sums(const std::string& what, const Tensor& tensor) {
  const std::vector<double> with = drawn(what, tensor.size()), values = tensor.values();
  Sums all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    all.plain += values[i];
    all.weighed += values[i] * with[i];
  }
  return all;
}

inline void expect_sums(const std::string& what, const Tensor& tensor, const nlohmann::json& want,
                        double within = allowed) {
  const Sums found = sums(what, tensor);
  const double scale = want[2].get<double>();
  EXPECT_GT(scale, 0) << what;
  EXPECT_NEAR(found.plain, want[0].get<double>(), within * scale) << what;
  EXPECT_NEAR(found.weighed, want[1].get<double>(), within * scale) << what;
}

/// Of every parameter behind tape.backward.
inline void expect_gradients(const Tape& tape, const nlohmann::json& want, double within = allowed) {
  std::size_t compared = 0;
  for (const Machine::NamedParameter& p : tape.parameters()) {
    const std::optional<Tensor> gradient = tape.gradient(p.value);
    ASSERT_EQ(gradient.has_value(), want.contains(p.name)) << p.name;
    if (!gradient) continue;
    expect_sums("gradient of " + p.name, *gradient, want[p.name], within);
    ++compared;
  }
  EXPECT_EQ(compared, want.size());
}

}  // namespace assay::align
