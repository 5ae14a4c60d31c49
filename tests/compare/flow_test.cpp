// Values that no operator made: each is judged by those that it follows from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "recorded_pair.h"

namespace assay::flow_test {
namespace {

constexpr std::int64_t tokens = 16, width = 24, experts = 4;

// The choices of a token: two of four experts.
std::vector<std::int64_t> choices(std::int64_t t) {
  return {t % experts, (t + 1 + t / experts % 3) % experts};
}
std::vector<std::int64_t> rows_of(std::int64_t expert) {
  std::vector<std::int64_t> rows;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (std::ranges::count(choices(t), expert) > 0) rows.push_back(t);
  }
  return rows;
}

// A layer of experts between a residual sum, two heads that are joined, and their gradients.
class Layer {
 public:
  Layer(MemoryDump& dump, std::string broken) : dump_(dump), broken_(std::move(broken)) {}

  void record() {
    for (micro_batch_ = 0; micro_batch_ < 2; ++micro_batch_) {
      forward();
      backward();
    }
  }

 private:
  // In bfloat16; the broken one has one element of another value.
  Values put(Phase phase, const std::string& module, const char* slot, const char* arg, Values values,
             Shape shape = {}) {
    if (shape.empty()) shape = {static_cast<std::int64_t>(values.size()) / width, width};
    if (micro_batch_ == 1 && module + " " + slot + " " + arg == broken_) values[5] += 1;
    const Tensor t = Tensor::from_values(DType::bfloat16, shape, values);
    dump_.add({0, micro_batch_, phase, module, slot, arg, 0}, t);
    return t.values();
  }
  Values drawn(std::uint64_t seed, std::int64_t columns = width) const {
    return normal_tensor(DType::bfloat16, {tokens, columns},
                         seed + 100 * static_cast<std::uint64_t>(micro_batch_))
        .values();
  }
  static Values row(const Values& v, std::int64_t t) {
    return Values(v.begin() + t * width, v.begin() + (t + 1) * width);
  }
  static double weight(std::int64_t t, std::int64_t k) {
    return 0.25 + 0.03125 * static_cast<double>((3 * t + 5 * k) % 8);
  }
  static std::string expert(std::int64_t e) { return "layer.moe.experts." + std::to_string(e) + ".fc"; }

  void forward() {
    const Phase f = Phase::forward;
    x_ = put(f, "layer", "input", "x", drawn(1));
    const Values left = put(f, "layer.a", "output", "y", drawn(2, 12), {tokens, 12}),
                 right = put(f, "layer.b", "output", "y", drawn(3, 12), {tokens, 12});
    Values joined;
    for (std::int64_t t = 0; t < tokens; ++t) {
      joined.insert(joined.end(), right.begin() + t * 12, right.begin() + (t + 1) * 12);
      joined.insert(joined.end(), left.begin() + t * 12, left.begin() + (t + 1) * 12);
    }
    put(f, "layer.heads", "input", "q", joined);
    inside_ = put(f, "layer.moe", "input", "x", x_);
    std::vector<std::int64_t> index;
    Values weights;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t k = 0; k < 2; ++k) {
        index.push_back(choices(t)[static_cast<std::size_t>(k)]);
        weights.push_back(weight(t, k));
      }
    }
    dump_.add({0, micro_batch_, f, "layer.moe.router", "output", "index", 0},
              Tensor::from_indices({tokens, 2}, index));
    put(f, "layer.moe.router", "output", "weights", weights, {tokens, 2});
    Values sum(static_cast<std::size_t>(tokens * width), 0);
    results_.assign(experts, {});
    for (std::int64_t e = 0; e < experts; ++e) {
      Values rows;
      for (const std::int64_t t : rows_of(e)) {
        const Values one = row(inside_, t);
        rows.insert(rows.end(), one.begin(), one.end());
      }
      rows = put(f, expert(e), "input", "x", rows);
      for (double& v : rows) v = std::tanh(v) + static_cast<double>(e);
      results_[static_cast<std::size_t>(e)] = put(f, expert(e), "output", "y", rows);
    }
    for_each_meeting([&](std::int64_t t, std::int64_t k, std::int64_t e, std::int64_t r) {
      for (std::int64_t j = 0; j < width; ++j)
        sum[at(t, j)] += weight(t, k) * results_[static_cast<std::size_t>(e)][at(r, j)];
    });
    const Values combined = put(f, "layer.moe.combine", "output", "y", sum);
    const Values out = put(f, "layer.moe", "output", "y", combined);
    put(f, "layer", "output", "y", plus(x_, out));
  }

  void backward() {
    const Phase b = Phase::backward;
    const Values g = put(b, "layer", "grad_output", "y", drawn(7));
    const Values of_moe = put(b, "layer.moe", "grad_output", "y", g);
    const Values of_sum = put(b, "layer.moe.combine", "grad_output", "y", of_moe);
    std::vector<Values> given(experts);
    for (std::int64_t e = 0; e < experts; ++e)
      given[static_cast<std::size_t>(e)].resize(rows_of(e).size() * static_cast<std::size_t>(width));
    Values of_weights(static_cast<std::size_t>(2 * tokens), 0);
    for_each_meeting([&](std::int64_t t, std::int64_t k, std::int64_t e, std::int64_t r) {
      for (std::int64_t j = 0; j < width; ++j) {
        given[static_cast<std::size_t>(e)][at(r, j)] = weight(t, k) * of_sum[at(t, j)];
        of_weights[static_cast<std::size_t>(2 * t + k)] +=
            of_sum[at(t, j)] * results_[static_cast<std::size_t>(e)][at(r, j)];
      }
    });
    std::vector<Values> back(experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      Values v = put(b, expert(e), "grad_output", "y", given[static_cast<std::size_t>(e)]);
      for (double& one : v) one = std::tanh(3 * one);
      back[static_cast<std::size_t>(e)] = put(b, expert(e), "grad_input", "x", v);
    }
    put(b, "layer.moe.router", "grad_output", "weights", of_weights, {tokens, 2});
    Values inside(static_cast<std::size_t>(tokens * width), 0);
    for_each_meeting([&](std::int64_t t, std::int64_t, std::int64_t e, std::int64_t r) {
      for (std::int64_t j = 0; j < width; ++j)
        inside[at(t, j)] += back[static_cast<std::size_t>(e)][at(r, j)];
    });
    const Values moe = put(b, "layer.moe", "grad_input", "x", inside);
    put(b, "layer", "grad_input", "x", plus(g, moe));
    const Values joined = put(b, "layer.heads", "grad_input", "q", drawn(9));
    Values left, right;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Values one = row(joined, t);
      right.insert(right.end(), one.begin(), one.begin() + 12);
      left.insert(left.end(), one.begin() + 12, one.end());
    }
    put(b, "layer.a", "grad_output", "y", left, {tokens, 12});
    put(b, "layer.b", "grad_output", "y", right, {tokens, 12});
  }

  static std::size_t at(std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(row * width + column);
  }
  static Values plus(const Values& a, const Values& b) {
    Values sum = a;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
    return sum;
  }
  template <class F>
  static void for_each_meeting(F f) {
    std::vector<std::int64_t> next(experts, 0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::vector<std::int64_t> own = choices(t);
      for (std::int64_t k = 0; k < 2; ++k) {
        const std::int64_t e = own[static_cast<std::size_t>(k)];
        f(t, k, e, next[static_cast<std::size_t>(e)]++);
      }
    }
  }

  MemoryDump& dump_;
  std::string broken_;
  std::int64_t micro_batch_ = 0;
  Values x_, inside_;
  std::vector<Values> results_;
};

Report isolated(const std::string& broken) {
  MemoryDump a("a"), r("r");
  Layer(a, broken).record();
  Layer(r, "").record();
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  options.isolate = true;
  return diff(a, r, options);
}

std::vector<std::string> created(const Report& report) {
  std::vector<std::string> names;
  for (const Finding& f : report.findings) {
    if (f.origin && f.origin->kind == Origin::Kind::created)
      names.push_back(f.id.module + " " + f.id.slot + " " + f.id.arg);
  }
  return names;
}

TEST(Flow, ARightLayerPasses) {
  const Report report = isolated("");
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(created(report), std::vector<std::string>());
}

TEST(Flow, OneWrongElementIsFoundWhereItIsMade) {
  for (const std::string wrong :
       {"layer.heads input q", "layer.moe input x", "layer.moe.experts.2.fc input x",
        "layer.moe.combine output y", "layer.moe output y", "layer output y", "layer.moe grad_output y",
        "layer.moe.combine grad_output y", "layer.moe.experts.1.fc grad_output y",
        "layer.moe.router grad_output weights", "layer.moe grad_input x", "layer grad_input x",
        "layer.a grad_output y", "layer.b grad_output y"}) {
    const Report report = isolated(wrong);
    EXPECT_EQ(created(report), std::vector{wrong});
    EXPECT_EQ(report.exit_status(), 1) << wrong;
  }
}

// What nothing made has no origin here, and what follows from it is right.
TEST(Flow, ASourceThatDiffersIsNoFaultOfWhatFollows) {
  const Report report = isolated("layer input x");
  EXPECT_EQ(created(report), std::vector<std::string>());
  EXPECT_EQ(report.exit_status(), 1);
}

}  // namespace
}  // namespace assay::flow_test
