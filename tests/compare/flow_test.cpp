// Values that no operator made: each is judged by those that it follows from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

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

Report of_layer(const std::string& broken) {
  return isolated([&](MemoryDump& d, bool is_actual) { Layer(d, is_actual ? broken : "").record(); });
}

TEST(Flow, ARightLayerPasses) {
  const Report report = of_layer("");
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
    const Report report = of_layer(wrong);
    EXPECT_EQ(created(report), std::vector{wrong});
    EXPECT_EQ(report.exit_status(), 1) << wrong;
  }
}

// What nothing made has no origin here, and what follows from it is right.
TEST(Flow, ASourceThatDiffersIsNoFaultOfWhatFollows) {
  const Report report = of_layer("layer input x");
  EXPECT_EQ(created(report), std::vector<std::string>());
  EXPECT_EQ(report.exit_status(), 1);
}

// A module that recorded its result alone: what it was given are the results of another that are called so.
TEST(Flow, AnInputThatWasNotRecordedIsBorrowed) {
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const Tensor gate = normal_tensor(DType::float32, {8, 16}, 11 + seed),
                     up = normal_tensor(DType::float32, {8, 16}, 21 + seed),
                     g = normal_tensor(DType::float32, {8, 16}, 31 + seed);
        const auto outputs = compute_golden(
            find_operator("swiglu"), std::vector<NamedTensor>{{"gate", gate}, {"up", up}, {"grad_y", g}}, {},
            Level::fp64);
        Tensor y = single(output_named(outputs, "y"));
        if (is_wrong && is_actual) y = with_one_wrong(y);
        d.add({0, mb, Phase::forward, "mlp.fc1", "output", "gate", 0}, gate);
        d.add({0, mb, Phase::forward, "mlp.fc1", "output", "up", 0}, up);
        d.add({0, mb, Phase::forward, "mlp.act", "output", "y", 0}, y).op = "swiglu";
        d.add({0, mb, Phase::backward, "mlp.act", "grad_output", "y", 0}, g).op = "swiglu";
        d.add({0, mb, Phase::backward, "mlp.fc1", "grad_output", "gate", 0},
              single(output_named(outputs, "grad_gate")));
        Tensor up_gradient = single(output_named(outputs, "grad_up"));
        if (!is_wrong && is_actual) up_gradient = with_one_wrong(up_gradient);
        d.add({0, mb, Phase::backward, "mlp.fc1", "grad_output", "up", 0}, up_gradient);
      }
    };
  };
  EXPECT_EQ(created(isolated(record(true))),
            (std::vector<std::string>{"mlp.act output y", "mlp.act output y"}));
  EXPECT_EQ(created(isolated(record(false))),
            (std::vector<std::string>{"mlp.fc1 grad_output up", "mlp.fc1 grad_output up"}));
}

// Which rows were sorted to where was recorded by who sorted them; and the rows of a token may be counted
// along the sequence or along the batch first.
TEST(Flow, SortedRowsAndDimensionsInAnotherOrderAreKnown) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const Tensor x = normal_tensor(DType::float32, {16}, 61 + seed);
        std::vector<std::int64_t> order;
        for (std::int64_t i = 0; i < 16; ++i) order.push_back((5 * i + mb) % 16);
        const Tensor index = Tensor::from_indices({16}, order);
        const auto sorted =
            compute_golden(find_operator("index_select"),
                           std::vector<NamedTensor>{{"x", x}, {"index", index}}, {}, Level::fp64);
        Tensor y = single(output_named(sorted, "y"));
        if (wrong == "rows" && is_actual) y = with_one_wrong(y);
        d.add({0, mb, Phase::forward, "moe", "output", "sorted", 0}, index);
        d.add({0, mb, Phase::forward, "moe.probs", "input", "x", 0}, x).op = "index_select";
        d.add({0, mb, Phase::forward, "moe.probs", "output", "y", 0}, y).op = "index_select";

        // [b, h, s, d] of one, [s b, h d] of the other
        constexpr std::int64_t b = 2, h = 3, s = 4, dims = 5;
        const Tensor heads = normal_tensor(DType::float32, {b, h, s, dims}, 71 + seed);
        Values rows(static_cast<std::size_t>(heads.size()));
        for (std::int64_t i = 0; i < heads.size(); ++i) {
          const std::int64_t at_d = i % dims, at_s = i / dims % s, at_h = i / dims / s % h,
                             at_b = i / dims / s / h;
          rows[static_cast<std::size_t>(((at_s * b + at_b) * h + at_h) * dims + at_d)] = heads.value(i);
        }
        Tensor flat = Tensor::from_values(DType::float32, {s * b, h * dims}, rows);
        if (wrong == "heads" && is_actual) flat = with_one_wrong(flat);
        d.add({0, mb, Phase::forward, "attn", "output", "out", 0}, heads);
        d.add({0, mb, Phase::forward, "attn.o", "input", "x", 0}, flat);
      }
    };
  };
  for (const auto& [wrong, name] : {std::pair("rows", "moe.probs output y"), {"heads", "attn.o input x"}}) {
    const Report report = isolated(record(wrong));
    EXPECT_EQ(created(report), (std::vector<std::string>{name, name}));
    EXPECT_EQ(report.coverage->unjudged, 2) << "attn output out: no operator made it";
  }
}

// The head of a further prediction is given the weight of the first one: its gradient is that of both.
TEST(Flow, AParameterThatAnotherModuleUsesHasBothGradients) {
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor w = normal_tensor(DType::float32, {6, 8}, 81);
      d.add({0, -1, Phase::forward, "head", "param", "weight", 0}, w);
      Values sum(static_cast<std::size_t>(w.size()));
      for (const char* module : {"head", "further"}) {
        const std::uint64_t seed = module[0] == 'h' ? 91 : 95;
        const Tensor x = normal_tensor(DType::float32, {16, 8}, seed),
                     g = normal_tensor(DType::float32, {16, 6}, seed + 1);
        const auto made =
            compute_golden(find_operator("linear"),
                           std::vector<NamedTensor>{{"x", x}, {"w", w}, {"grad_y", g}}, {}, Level::fp64);
        const auto put = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
          d.add({0, 0, phase, module, slot, arg, 0}, t).op = "linear";
        };
        put(Phase::forward, "input", "x", x);
        if (seed == 95) put(Phase::forward, "input", "w", w);
        put(Phase::forward, "output", "y", single(output_named(made, "y")));
        put(Phase::backward, "grad_output", "y", g);
        // The faulty side forgets the second use.
        for (std::size_t i = 0; i < sum.size() && (seed == 91 || !is_wrong || !is_actual); ++i)
          sum[i] += output_named(made, "grad_w").value(static_cast<std::int64_t>(i));
      }
      Tensor total = Tensor::from_values(DType::float32, w.shape(), sum);
      // Within the tolerance, and not the same bits: what is equal is not judged.
      if (is_actual && !is_wrong) total = plus(total, 0x1p-23, total);
      d.add({0, -1, Phase::backward, "head", "grad", "weight.unreduced", 0}, total).op = "linear";
    };
  };
  EXPECT_EQ(created(isolated(record(true))), std::vector<std::string>{"head grad weight.unreduced"});
  const Report right = isolated(record(false));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0);
}

// Gemma's table is scaled where it is looked up, and multiplied as it is at the end: before the first step
// the results of both sides are equal, and only the gradient shows the scale.
TEST(Flow, ATiedTableMayBeScaledWhereItIsLookedUp) {
  const auto record = [](double scale) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor w = normal_tensor(DType::float32, {6, 8}, 81),
                   x = normal_tensor(DType::float32, {16, 8}, 91),
                   g = normal_tensor(DType::float32, {16, 6}, 92),
                   of_embedding = normal_tensor(DType::float32, {5, 8}, 93),
                   index = Tensor::from_indices({5}, std::vector<std::int64_t>{3, 0, 3, 5, 1});
      const auto put = [&](Phase phase, const char* module, const char* op, const char* slot, const char* arg,
                           const Tensor& t) {
        d.add({0, 0, phase, module, slot, arg, 0}, t).op = op;
      };
      d.add({0, -1, Phase::forward, "embed", "param", "weight", 0}, w);
      put(Phase::forward, "embed", "scaled_embedding", "input", "index", index);
      put(Phase::forward, "head", "linear", "input", "x", x);
      put(Phase::forward, "head", "linear", "input", "w", w);
      put(Phase::backward, "head", "linear", "grad_output", "y", g);
      put(Phase::backward, "embed", "scaled_embedding", "grad_output", "y", of_embedding);
      const Tensor product = output("linear", {{"x", x}, {"w", w}, {"grad_y", g}}, {}, "grad_w"),
                   looked_up =
                       output("scaled_embedding", {{"weight", w}, {"index", index}, {"grad_y", of_embedding}},
                              {{"scale", is_actual ? scale : 8}}, "grad_weight");
      const Tensor total = plus(product, 1, looked_up);
      d.add({0, -1, Phase::backward, "embed", "grad", "weight.unreduced", 0},
            is_actual ? plus(total, 0x1p-23, total) : total);
    };
  };
  const Report right = isolated(record(8));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0);
  EXPECT_EQ(created(isolated(record(1))), std::vector<std::string>{"embed grad weight.unreduced"});
}

// The gradient of logits is what the router gives back and that of a balance loss that nobody recorded.
TEST(Flow, ALossThatNobodyRecordedIsSolved) {
  const auto record = [](double coefficient_of_actual) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const Tensor logits = normal_tensor(DType::float32, {16, 4}, 41 + seed),
                     back = normal_tensor(DType::float32, {16, 4}, 51 + seed);
        std::vector<std::int64_t> index;
        for (std::int64_t t = 0; t < tokens; ++t)
          index.insert(index.end(), {t % 3, 3});  // of equal loads the gradient is 0
        const Tensor chosen = Tensor::from_indices({16, 2}, index);
        const auto loss = compute_golden(find_operator("moe_aux_loss"),
                                         std::vector<NamedTensor>{{"logits", logits}, {"index", chosen}},
                                         {{"top_k", 2}, {"score", "sigmoid"}}, Level::fp64);
        const double coefficient = is_actual ? coefficient_of_actual : 0.75;
        d.add({0, mb, Phase::forward, "moe.gate", "output", "y", 0}, logits);
        d.add({0, mb, Phase::forward, "moe.router", "input", "logits", 0}, logits);
        d.add({0, mb, Phase::forward, "moe", "output", "index", 0}, chosen);
        d.add({0, mb, Phase::backward, "moe.router", "grad_input", "logits", 0}, back);
        d.add({0, mb, Phase::backward, "moe.gate", "grad_output", "y", 0},
              plus(back, coefficient, output_named(loss, "grad_logits")));
      }
    };
  };
  EXPECT_EQ(isolated(record(0.75)).exit_status(), 0);
  EXPECT_EQ(created(isolated(record(0.7))),
            (std::vector<std::string>{"moe.gate grad_output y", "moe.gate grad_output y"}));
}

// They are known by their values, whatever they are called.
TEST(Flow, NumbersOfAStepAreJudged) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t step : {0, 1}) {
        const auto put = [&](const char* module, const char* arg, double value) {
          if (is_actual && step == 1 && wrong == arg) value *= 1.01;
          d.add({step, -1, Phase::optimizer, module, "state", arg, 0},
                Tensor::from_values(DType::float32, {}, {{value}}));
        };
        const Tensor g = normal_tensor(DType::float32, {32, 32}, 61 + static_cast<std::uint64_t>(step));
        double squares = 0;
        for (const double v : g.values()) squares += v * v;
        Values counts(experts, 0);
        for (std::int64_t mb = 0; mb < 2; ++mb) {
          std::vector<std::int64_t> index;
          for (std::int64_t t = 0; t < tokens; ++t) {
            index.push_back((t * t + step + mb) % experts);
            ++counts[static_cast<std::size_t>(index.back())];
          }
          d.add({step, mb, Phase::forward, "router", "output", "index", 0},
                Tensor::from_indices({tokens, 1}, index));
        }
        if (is_actual && step == 1 && wrong == "load") counts[2] += 1;
        d.add({step, -1, Phase::backward, "layer", "grad", "weight", 0}, g);
        put("total", "length", std::sqrt(squares));
        put("total", "shrink", 0.5 / (std::sqrt(squares) + 1e-6));
        d.add({step, -1, Phase::optimizer, "router", "state", "load", 0},
              Tensor::from_values(DType::float32, {experts}, counts));
      }
    };
  };
  EXPECT_EQ(isolated(record("")).exit_status(), 0);
  EXPECT_EQ(created(isolated(record("length"))).front(), "total state length");
  EXPECT_EQ(created(isolated(record("shrink"))), std::vector<std::string>{"total state shrink"});
  EXPECT_EQ(created(isolated(record("load"))), std::vector<std::string>{"router state load"});
}

// The order of a row's choices is no difference; a near tie may go either way, another choice is wrong.
TEST(Flow, AChoiceIsRightIfItsScoresAllowIt) {
  const auto record = [](std::int64_t first, std::int64_t second, double gap) {
    return [=](MemoryDump& d, bool is_actual) {
      Values logits = normal_tensor(DType::float32, {16, 4}, 71).values();
      const double row[] = {2, 1, 1 - gap, -1};
      std::copy_n(row, 4, logits.begin());
      const Tensor z = Tensor::from_values(DType::float32, {16, 4}, logits);
      std::vector<std::int64_t> index =
          output_named(compute_golden(find_operator("router_topk"), std::vector<NamedTensor>{{"logits", z}},
                                      {{"top_k", 2}}, Level::fp64),
                       "index")
              .indices();
      if (is_actual) index[0] = first, index[1] = second;
      d.add({0, 0, Phase::forward, "router", "input", "logits", 0}, z).op = "router_topk";
      d.add({0, 0, Phase::forward, "router", "output", "index", 0}, Tensor::from_indices({16, 2}, index)).op =
          "router_topk";
    };
  };
  const auto verdict = [&](std::int64_t first, std::int64_t second, double gap) {
    return isolated(record(first, second, gap)).findings.back();
  };
  EXPECT_EQ(verdict(1, 0, 0.5).verdict, Verdict::exempt) << "the order";
  EXPECT_EQ(verdict(0, 2, 1e-8).verdict, Verdict::exempt) << "a tie";
  EXPECT_EQ(verdict(0, 2, 1e-8).exemption->kind, Exemption::Kind::legal_tie);
  EXPECT_EQ(verdict(0, 2, 0.5).verdict, Verdict::failed);
  EXPECT_EQ(verdict(2, 3, 1e-8).verdict, Verdict::failed) << "two are traded";
  EXPECT_EQ(verdict(1, 2, 1e-8).verdict, Verdict::failed) << "the best is left out, though others tie";
}

}  // namespace
}  // namespace assay::flow_test
