#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "faulty_pair.h"
#include "memory_dump.h"

namespace assay {

/// What an optimizer does: this test's own code in float32 or float64, so that it can be wrong in any way.
struct OptimizerUnderTest {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, max_norm = 1;
  bool l2 = false, corrects = true, inside = false, hat = false;
  double sign = 1;
  int times = 1;  ///< the whole step
  double update_times = 1, update_sign = 1;
  double recorded_gradient = 1;  ///< times all that is computed with, too
  int shares = 1;                ///< of the gradient, recorded before their sum
  bool narrow = false;           ///< gradients are added up and recorded in bfloat16
  bool has_zeros = false;        ///< one in eight elements of each gradient is zero
  std::int64_t first_step = 1;   ///< t of step 0
  bool counts_from_one = false;  ///< t = 1 in every step
  /// By name; the default: no decay of vectors.
  std::function<double(const std::string&, const Shape&)> decay_of;
  /// The coefficient, of all norms of gradients by name; the default: min(1, max_norm / (norm + 1e-6)).
  std::function<double(const std::string&, const std::map<std::string, double>& squares)> clip;
  /// The gradient that is used instead.
  std::function<Values(const std::string&, std::int64_t step, const Values&)> gradient;
  std::function<double(double norm, const std::map<std::string, double>& squares)> norm;
  std::function<bool(const std::string&, std::int64_t step)> keeps_second;  ///< exp_avg_sq as it is
  /// Changes the moments that a step starts from.
  std::function<void(const std::string&, std::int64_t step, Values& m, Values& v)> before;
  /// Changes what a step has left, before it is recorded.
  std::function<void(const std::string&, std::int64_t step, const Values& before, Values& after, Values& m,
                     Values& v)>
      after;
};

inline const std::map<std::string, Shape>& parameters_under_test() {
  static const std::map<std::string, Shape> all = {
      {"model.embed_tokens", {48, 16}},
      {"model.layers.0.input_layernorm", {40}},
      {"model.layers.0.self_attn.q_proj", {16, 16}},
      {"model.layers.0.mlp.up_proj", {32, 16}},
      {"model.layers.1.input_layernorm", {40}},
      {"model.layers.1.self_attn.q_proj", {16, 16}},
      {"model.layers.1.mlp.gate", {4, 16}},
      {"model.layers.1.mlp.experts.*.up_proj", {4, 24, 16}},
      {"model.norm", {40}},
      {"lm_head", {48, 16}},
  };
  return all;
}

/// Of two ranks: powers of two, so that their sum is exact.
inline Values share_of(Values g, int rank) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double first = i % 3 == 0 ? 0.5 : i % 3 == 1 ? 0.25 : 2;
    g[i] *= rank == 0 ? first : 1 - first;
  }
  return g;
}

/// How a recipe stores parameters: in float64, in float32, in bfloat16 beside a master in float32.
enum class Recipe : std::uint8_t { fp64, fp32, bf16 };

/// Steps of a run whose gradients do not depend on the parameters: faults do not change them.
/// @param gradients  a factor of all of them: the norm is some 6 times it
template <class T>
void record_steps(MemoryDump& dump, const OptimizerUnderTest& o, Recipe recipe, int steps, double gradients) {
  const DType d = recipe == Recipe::fp64 ? DType::float64 : DType::float32;
  struct State {
    Values p, m, v;
  };
  if (o.shares > 1) {
    dump.world_size = o.shares;
    dump.mesh = {{"dp"}, {o.shares}};
  }
  std::map<std::string, State> states;
  std::uint64_t seed = 1;
  for (const auto& [name, shape] : parameters_under_test()) {
    const auto n = element_count(shape);
    State s{Random(seed++).normals(n, shape.size() == 1 ? 0.1 : 0.05), Values(static_cast<std::size_t>(n)),
            Values(static_cast<std::size_t>(n))};
    // What is loaded; masters are made of it.
    const DType loaded = recipe == Recipe::bf16 ? DType::bfloat16 : d;
    for (double& x : s.p) x = round_to(loaded, shape.size() == 1 ? 1 + x : x);
    states[name] = s;
  }
  for (int step = 0; step < steps; ++step) {
    const auto add = [&](Phase phase, const std::string& name, const char* slot, const std::string& arg,
                         DType as, const Values& values) {
      dump.add({step, -1, phase, name, slot, arg, 0},
               Tensor::from_values(as, parameters_under_test().at(name), values));
    };
    const DType stored = recipe == Recipe::bf16 ? DType::bfloat16 : d;
    std::map<std::string, Values> all;
    std::map<std::string, double> squares;
    double square = 0;
    for (const auto& [name, state] : states) {
      add(Phase::forward, name, "param", "weight", stored, state.p);
      const auto n = element_count(parameters_under_test().at(name));
      Values& g = all[name] = Random(100 * seed + static_cast<std::uint64_t>(step)).normals(n);
      ++seed;
      Random size(seed);  // over some orders of magnitude, as gradients are
      for (double& x : g)
        x = static_cast<double>(static_cast<T>(o.recorded_gradient * gradients * 0.1 * x *
                                               std::pow(10., -6 * std::pow(size.uniform(), 3))));
      for (std::size_t i = 0; i < g.size(); ++i) {
        if (o.narrow) g[i] = round_to(DType::bfloat16, g[i]);
        if (o.has_zeros && i % 8 == 0) g[i] = 0;
      }
      for (const double x : g) squares[name] += x * x;
      square += squares[name];
      for (int rank = 0; rank < o.shares && o.shares > 1; ++rank) {
        Record& r =
            dump.add_copy({step, -1, Phase::backward, name, "grad", "weight.unreduced", 0}, rank,
                          Tensor::from_values(d, parameters_under_test().at(name), share_of(g, rank)));
        r.placements.front().kind = Placement::Kind::partial;
      }
      add(Phase::backward, name, "grad", "weight", o.narrow ? DType::bfloat16 : d, g);
    }
    const double norm = o.norm ? o.norm(std::sqrt(square), squares) : std::sqrt(square);
    dump.add({step, -1, Phase::backward, "step", "loss", "grad_norm", 0},
             Tensor({}, std::span<const double>(&norm, 1)));
    const std::int64_t t = o.counts_from_one ? 1 : step + o.first_step;
    for (auto& [name, s] : states) {
      const Shape& shape = parameters_under_test().at(name);
      const double decay = o.decay_of ? o.decay_of(name, shape) : shape.size() == 1 ? 0 : o.decay;
      const double clip = o.clip ? o.clip(name, squares) : std::min(1., o.max_norm / (norm + 1e-6));
      const Values gradient = o.gradient ? o.gradient(name, step, all.at(name)) : all.at(name);
      if (o.before) o.before(name, step, s.m, s.v);
      const State before = s;
      for (int k = 0; k < o.times; ++k) {
        for (std::size_t i = 0; i < s.p.size(); ++i) {
          const T b1 = static_cast<T>(o.beta1), b2 = static_cast<T>(o.beta2), lr = static_cast<T>(o.lr),
                  eps = static_cast<T>(o.eps), wd = static_cast<T>(decay), p = static_cast<T>(s.p[i]);
          T g = static_cast<T>(o.sign * clip) * static_cast<T>(gradient[i]);
          if (o.l2) g += wd * p;
          const T m = b1 * static_cast<T>(s.m[i]) + (T(1) - b1) * g;
          const bool is_kept = o.keeps_second && o.keeps_second(name, step);
          const T v = is_kept ? static_cast<T>(s.v[i]) : b2 * static_cast<T>(s.v[i]) + (T(1) - b2) * g * g;
          const T c1 = o.corrects ? T(1) - static_cast<T>(std::pow(b1, t)) : T(1);
          const T c2 = o.corrects ? T(1) - static_cast<T>(std::pow(b2, t)) : T(1);
          const T root = o.inside ? std::sqrt(v / c2 + eps)
                         : o.hat  ? (std::sqrt(v) + eps) / std::sqrt(c2)
                                  : std::sqrt(v / c2) + eps;
          const T kept = o.l2 ? p : p * (T(1) - static_cast<T>(o.update_times) * lr * wd);
          s.p[i] = static_cast<double>(kept -
                                       static_cast<T>(o.update_sign * o.update_times) * lr * (m / c1) / root);
          s.m[i] = static_cast<double>(m);
          s.v[i] = static_cast<double>(v);
        }
      }
      if (o.after) o.after(name, step, before.p, s.p, s.m, s.v);
      add(Phase::optimizer, name, "param", "weight", stored, s.p);
      add(Phase::optimizer, name, "state", "weight.exp_avg", d, s.m);
      add(Phase::optimizer, name, "state", "weight.exp_avg_sq", d, s.v);
      if (recipe == Recipe::bf16) add(Phase::optimizer, name, "state", "weight.master", d, s.p);
    }
  }
}

inline void record_steps(MemoryDump& dump, const OptimizerUnderTest& o, Recipe recipe, int steps = 2,
                         double gradients = 1) {
  if (recipe == Recipe::fp64)
    record_steps<double>(dump, o, recipe, steps, gradients);
  else
    record_steps<float>(dump, o, recipe, steps, gradients);
}

}  // namespace assay
