// Rows in numbers of their own in each micro-batch, and what functions between modules are given.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::flow_functions_test {
namespace {

constexpr std::int64_t tokens = 16, width = 24;

// A dispatcher says which token each row is of: rows are taken by it, and added up by it again.
TEST(FlowOfFunctions, RowsThatAnIndexNumbersAreTakenAndAddedUp) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        constexpr std::int64_t rows = 24;
        const auto stored = [&](const std::string& name, Values values) {
          if (wrong == name && is_actual && mb == 1) values[7] += 1;
          return Tensor::from_values(DType::bfloat16, {std::ssize(values) / width, width}, values);
        };
        std::vector<std::int64_t> order;
        for (std::int64_t i = 0; i < rows; ++i) order.push_back((5 * i + mb) % tokens);
        const auto taken = [&](const Values& from) {
          Values to;
          for (const std::int64_t t : order)
            to.insert(to.end(), from.begin() + t * width, from.begin() + (t + 1) * width);
          return to;
        };
        const auto added = [&](const Values& from) {
          Values to(static_cast<std::size_t>(tokens * width), 0);
          for (std::size_t r = 0; r < order.size(); ++r) {
            for (std::int64_t j = 0; j < width; ++j)
              to[static_cast<std::size_t>(order[r] * width + j)] +=
                  from[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(j)];
          }
          return to;
        };
        const auto drawn = [&](std::int64_t n, std::uint64_t s) {
          return normal_tensor(DType::bfloat16, {n, width}, s + seed).values();
        };
        const Values x = drawn(tokens, 11), made = drawn(rows, 21), grad_y = drawn(tokens, 31),
                     grad_in = drawn(rows, 41);
        d.add({0, mb, Phase::forward, "moe", "input", "x", 0}, stored("", x));
        d.add({0, mb, Phase::forward, "moe.router", "output", "order", 0},
              Tensor::from_indices({rows}, order));
        d.add({0, mb, Phase::forward, "moe.experts", "input", "x", 0}, stored("taken", taken(x)));
        d.add({0, mb, Phase::forward, "moe.experts", "output", "y", 0}, stored("", made));
        d.add({0, mb, Phase::forward, "moe", "output", "y", 0}, stored("added", added(made)));
        d.add({0, mb, Phase::backward, "moe", "grad_output", "y", 0}, stored("", grad_y));
        d.add({0, mb, Phase::backward, "moe.experts", "grad_output", "y", 0},
              stored("grad of added", taken(grad_y)));
        d.add({0, mb, Phase::backward, "moe.experts", "grad_input", "x", 0}, stored("", grad_in));
        d.add({0, mb, Phase::backward, "moe", "grad_input", "x", 0}, stored("grad of taken", added(grad_in)));
      }
    };
  };
  EXPECT_TRUE(created(isolated(record("nothing"))).empty());
  for (const auto& [wrong, name] : {std::pair("taken", "moe.experts input x"),
                                    {"added", "moe output y"},
                                    {"grad of added", "moe.experts grad_output y"},
                                    {"grad of taken", "moe grad_input x"}}) {
    const Report report = isolated(record(wrong));
    EXPECT_EQ(created(report), std::vector<std::string>{name}) << wrong;
  }
}

// A batch of rows is cut into pieces of any size, each for a call of its own, and what the calls make is
// joined.
TEST(FlowOfFunctions, PiecesAreCutAndJoined) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const std::vector<std::int64_t> sizes =
            mb == 0 ? std::vector<std::int64_t>{3, 5, 4} : std::vector<std::int64_t>{6, 0, 6};
        const auto stored = [&](const std::string& name, Values values) {
          if (wrong == name && is_actual && mb == 1) values[7] += 1;
          return Tensor::from_values(DType::float32, {std::ssize(values) / width, width}, values);
        };
        const auto drawn = [&](std::uint64_t s) {
          return normal_tensor(DType::float32, {12, width}, s + seed).values();
        };
        const Values x = drawn(11), y = drawn(21), grad_y = drawn(31), grad_x = drawn(41);
        d.add({0, mb, Phase::forward, "experts", "input", "x", 0}, stored("none", x));
        std::int64_t at = 0;
        for (std::int64_t call = 0; call < 3; at += sizes[static_cast<std::size_t>(call++)]) {
          const auto piece = [&](const Values& of) {
            return Values(of.begin() + at * width,
                          of.begin() + (at + sizes[static_cast<std::size_t>(call)]) * width);
          };
          const bool is_last = call == 2;
          const auto add = [&](Phase phase, const char* slot, const char* arg, const Values& of) {
            d.add({0, mb, phase, "experts.linear()", slot, arg, call},
                  stored(is_last ? slot : "none", piece(of)));
          };
          add(Phase::forward, "input", "x", x);
          add(Phase::forward, "output", "y", y);
          add(Phase::backward, "grad_output", "y", grad_y);
          add(Phase::backward, "grad_input", "x", grad_x);
        }
        d.add({0, mb, Phase::forward, "experts", "output", "y", 0}, stored("joined", y));
        d.add({0, mb, Phase::backward, "experts", "grad_output", "y", 0}, stored("none", grad_y));
        d.add({0, mb, Phase::backward, "experts", "grad_input", "x", 0}, stored("cut", grad_x));
      }
    };
  };
  const auto of = [&](const std::string& wrong) { return created(isolated(record(wrong))); };
  EXPECT_TRUE(of("nothing").empty());
  EXPECT_EQ(of("input"), std::vector<std::string>{"experts.linear() input x"});
  EXPECT_EQ(of("joined"), std::vector<std::string>{"experts output y"});
  EXPECT_EQ(of("grad_output"), std::vector<std::string>{"experts.linear() grad_output y"});
  EXPECT_EQ(of("cut"), std::vector<std::string>{"experts grad_input x"});
}

// A scale in the code differs: a number that follows from data may, too, but then it is not the same in all
// micro-batches.
TEST(FlowOfFunctions, ANumberOfTheProgramIsNotRounded) {
  const auto record = [](double scale, double of_data, int ranks = 1) {
    return [=](MemoryDump& d, bool is_actual) {
      if (is_actual) d.world_size = ranks;
      for (const std::int64_t mb : {0, 1}) {
        const Tensor x = normal_tensor(DType::float32, {4, 8}, 51 + static_cast<std::uint64_t>(mb));
        const double number = 0.25 * (is_actual ? scale : 1) + of_data * static_cast<double>(mb);
        Values y = x.values();
        for (double& v : y) v *= static_cast<float>(number);
        d.add({0, mb, Phase::forward, "attn.mul()", "input", "a", 0}, x).op = "mul";
        d.add({0, mb, Phase::forward, "attn.mul()", "input", "b", 0},
              Tensor::from_values(DType::float32, {}, Values{number}))
            .op = "mul";
        d.add({0, mb, Phase::forward, "attn.mul()", "output", "y", 0},
              Tensor::from_values(DType::float32, {4, 8}, y))
            .op = "mul";
      }
    };
  };
  const std::string name = "attn.mul() input b";
  EXPECT_EQ(created(isolated(record(1.02, 0))), (std::vector<std::string>{name, name}));
  EXPECT_TRUE(created(isolated(record(1, 0))).empty());
  EXPECT_TRUE(created(isolated(record(1 + 1e-6, 0))).empty()) << "as roundings may make it";
  EXPECT_TRUE(created(isolated(record(0.5, 0, 2))).empty()) << "it may count ranks";
  EXPECT_TRUE(created(isolated(record(1.02, 1))).empty()) << "of data: nobody knows what it was made of";
}

// A function is given a weight as a value: its gradient is that of the parameter.
TEST(FlowOfFunctions, AWeightThatIsGivenHasItsGradient) {
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = normal_tensor(DType::float32, {6, 8}, 1), w = normal_tensor(DType::float32, {4, 8}, 2),
                   g = normal_tensor(DType::float32, {6, 4}, 3);
      const auto made =
          compute_golden(find_operator("linear"), std::vector<NamedTensor>{{"x", x}, {"w", w}, {"grad_y", g}},
                         {}, Level::fp64);
      const auto add = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, 0, phase, "experts.linear()", slot, arg, 0}, t).op = "linear";
      };
      add(Phase::forward, "input", "x", x);
      add(Phase::forward, "input", "w", w);
      add(Phase::forward, "output", "y", single(output_named(made, "y")));
      add(Phase::backward, "grad_output", "y", g);
      add(Phase::backward, "grad_input", "x", single(output_named(made, "grad_x")));
      const Tensor grad_w = single(output_named(made, "grad_w"));
      add(Phase::backward, "grad_input", "w", is_wrong && is_actual ? with_one_wrong(grad_w) : grad_w);
    };
  };
  EXPECT_TRUE(created(isolated(record(false))).empty());
  EXPECT_EQ(created(isolated(record(true))), std::vector<std::string>{"experts.linear() grad_input w"});
}

TEST(FlowOfFunctions, AChoiceIsHandedOn) {
  const auto record = [](std::int64_t handed_on) {
    return [=](MemoryDump& d, bool is_actual) {
      Values logits = normal_tensor(DType::float32, {16, 4}, 71).values();
      const double row[] = {2, 1, 1 - 1e-8, -1};
      std::copy_n(row, 4, logits.begin());
      const Tensor z = Tensor::from_values(DType::float32, {16, 4}, logits);
      std::vector<std::int64_t> index =
          output_named(compute_golden(find_operator("router_topk"), std::vector<NamedTensor>{{"logits", z}},
                                      {{"top_k", 2}}, Level::fp64),
                       "index")
              .indices();
      if (is_actual) index[1] = 2;
      d.add({0, 0, Phase::forward, "moe.gate", "input", "logits", 0}, z).op = "router_topk";
      d.add({0, 0, Phase::forward, "moe.gate", "output", "index", 0}, Tensor::from_indices({16, 2}, index))
          .op = "router_topk";
      if (is_actual) index[1] = handed_on;
      d.add({0, 0, Phase::forward, "moe", "output", "choice", 0}, Tensor::from_indices({16, 2}, index));
    };
  };
  const Finding right = isolated(record(2)).findings.back();
  EXPECT_EQ(right.verdict, Verdict::exempt);
  EXPECT_EQ(right.exemption->kind, Exemption::Kind::legal_tie);
  EXPECT_EQ(isolated(record(3)).findings.back().verdict, Verdict::failed);
}

}  // namespace
}  // namespace assay::flow_functions_test
