// Modules of classes that nobody named: their operator shows in what they made, also where it is wide.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "isolated.h"

namespace assay::unknown_class_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// Each row of a call is more than what is tried of small ones.
Report of_class(const char* op, Shape weight, std::int64_t width, bool one_wrong) {
  return isolated([&](MemoryDump& d, bool is_actual) {
    const std::vector<NamedTensor> inputs = {
        {"x", noisy(normal_tensor(DType::float32, {64, width}, 10), is_actual ? 1 : 2)},
        {std::string(op) == "linear" ? "w" : "weight", normal_tensor(DType::float32, weight, 20)}};
    const Tensor y = output(op, inputs, {}, "y");
    d.add({0, -1, f, "part", "param", "weight", 0}, inputs[1].tensor);
    d.add({0, 0, f, "part", "input", "x", 0}, inputs[0].tensor).op = "TheirOwn";
    d.add({0, 0, f, "part", "output", "y", 0}, one_wrong && is_actual ? with_one_wrong(y) : y).op =
        "TheirOwn";
  });
}

TEST(UnknownClass, IsFoundWhereItIsWide) {
  for (const auto& [op, weight, width] : {std::tuple("rms_norm", Shape{2560}, std::int64_t{2560}),
                                          {"linear", Shape{600, 700}, std::int64_t{700}}}) {
    const Report right = of_class(op, weight, width, false);
    EXPECT_EQ(right.exit_status(), 0) << op;
    EXPECT_EQ(finding(right, "part", "output").unjudged, "") << op;
  }
  EXPECT_EQ(created(of_class("rms_norm", {2560}, 2560, true)), std::vector<std::string>{"part output y"});
}

// What a program calls the parameters of its class, in the order in which it has them.
TEST(UnknownClass, MayCallItsParametersAnything) {
  struct Class {
    const char* op;
    std::vector<const char*> own, declared;
    std::vector<Shape> shapes;
  };
  for (const Class& c : {Class{"rms_norm", {"g"}, {"weight"}, {{32}}},
                         {"layer_norm", {"gamma", "beta"}, {"weight", "bias"}, {{32}, {32}}},
                         {"linear", {"kernel"}, {"w"}, {{24, 32}}},
                         {"linear", {"kernel", "bias"}, {"w", "b"}, {{24, 32}, {24}}}}) {
    const Report report = isolated([&](MemoryDump& d, bool is_actual) {
      std::vector<NamedTensor> inputs = {
          {"x", noisy(normal_tensor(DType::float32, {64, 32}, 10), is_actual ? 1 : 2)}};
      for (std::size_t p = 0; p < c.own.size(); ++p) {
        inputs.push_back({c.declared[p], normal_tensor(DType::float32, c.shapes[p], 20 + p)});
        d.add({0, -1, f, "part", "param", c.own[p], 0}, inputs.back().tensor);
      }
      const Tensor y = output(c.op, inputs, {}, "y");
      d.add({0, 0, f, "part", "input", "x", 0}, inputs[0].tensor).op = "TheirOwn";
      d.add({0, 0, f, "part", "output", "y", 0}, y).op = "TheirOwn";
      inputs.push_back({"grad_y", noisy(normal_tensor(DType::float32, y.shape(), 30), is_actual ? 3 : 4)});
      d.add({0, 0, b, "part", "grad_output", "y", 0}, inputs.back().tensor).op = "TheirOwn";
      for (std::size_t p = 0; p < c.own.size(); ++p) {
        const std::string gradient = std::string("grad_") + c.declared[p];
        d.add({0, -1, b, "part", "grad", c.own[p], 0}, output(c.op, inputs, {}, gradient));
      }
    });
    EXPECT_EQ(report.exit_status(), 0) << c.op;
    EXPECT_EQ(finding(report, "part", "output").unjudged, "") << c.op;
    for (const Finding& found : report.findings) {
      if (found.id.slot != "grad") continue;
      EXPECT_EQ(found.unjudged, "") << c.op << found.id.arg;
    }
  }
}

// A weight and a bias for each channel that begin as ones and zeros: the first step shows copies only.
auto affine(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t channels = 16;
    for (const std::int64_t step : {0, 1}) {
      for (const std::uint64_t layer : {1, 2, 3}) {
        const std::string norm = "norm" + std::to_string(layer);
        std::vector<NamedTensor> inputs = {
            {"x", noisy(normal_tensor(DType::float32, {2, 12, channels}, 10 + layer), is_actual ? 1 : 2)}};
        for (const double begin : {1., 0.}) {
          Values values(channels, begin);
          for (std::size_t c = 0; step > 0 && c < values.size(); ++c)
            values[c] += 0x1p-8 * static_cast<double>(c + 1);
          inputs.push_back(
              {begin == 1 ? "weight" : "bias", Tensor::from_values(DType::float32, {channels}, values)});
          d.add({step, -1, f, norm, "param", inputs.back().name, 0}, inputs.back().tensor);
        }
        inputs.push_back({"grad_y", noisy(normal_tensor(DType::float32, {2, 12, channels}, 30 + layer),
                                          is_actual ? 3 : 4)});
        const auto made = [&](const std::string& result) {
          Tensor t = output("channel_affine", inputs, {}, result);
          if (!is_actual || step == 0 || layer != 2 || result != wrong) return t;
          return result == "y" ? plus(t, .01, t) : with_one_wrong(t);
        };
        d.add({step, 0, f, norm, "input", "x", 0}, inputs[0].tensor).op = "TheirOwn";
        d.add({step, 0, f, norm, "output", "y", 0}, made("y")).op = "TheirOwn";
        d.add({step, 0, b, norm, "grad_output", "y", 0}, inputs[3].tensor).op = "TheirOwn";
        d.add({step, 0, b, norm, "grad_input", "x", 0}, made("grad_x")).op = "TheirOwn";
        for (const char* param : {"weight", "bias"})
          d.add({step, -1, b, norm, "grad", param, 0}, made(std::string("grad_") + param));
      }
    }
  };
}

TEST(UnknownClass, MayBeginAsACopy) {
  const Report right = isolated(affine(""));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& found : right.findings) {
    const std::string& slot = found.id.slot;
    if (slot == "output" || slot == "grad_input" || slot == "grad") {
      EXPECT_EQ(found.unjudged, "") << found.name;
    }
  }
  for (const auto& [wrong, first] : {std::pair("y", "norm2 output y"),
                                     {"grad_x", "norm2 grad_input x"},
                                     {"grad_weight", "norm2 grad weight"},
                                     {"grad_bias", "norm2 grad bias"}})
    EXPECT_EQ(created(isolated(affine(wrong))), std::vector<std::string>{first}) << wrong;
}

// q, k and v under a class's own names: the order of the call is the operator's.
TEST(UnknownClass, InputsMayHaveAnyNames) {
  const auto record = [](MemoryDump& d, bool is_actual) {
    const Tensor q = normal_tensor(DType::float32, {2, 2, 6, 8}, 1),
                 k = normal_tensor(DType::float32, {2, 2, 6, 8}, 2),
                 v = normal_tensor(DType::float32, {2, 2, 6, 8}, 3);
    const auto add = [&](const char* slot, const char* arg, const Tensor& t) {
      d.add({0, 0, f, "part", slot, arg, 0}, t).op = "TheirOwn";
    };
    add("input", "q_own", q), add("input", "k_own", k), add("input", "v_own", v);
    const Tensor y = output("attention", {{"q", q}, {"k", k}, {"v", v}}, {}, "out");
    add("output", "y", is_actual ? with_one_wrong(y) : y);
  };
  EXPECT_EQ(created(isolated(record)), std::vector<std::string>{"part output y"});
  EXPECT_EQ(isolated(record).coverage->unjudged, 0);
}

// A rope of q and k in one call, under names that the results do not have: each result has the shape of its
// input.
TEST(UnknownClass, TwoCallsInOneArePairedInTheirOrder) {
  const auto record = [](MemoryDump& d, bool is_actual) {
    const auto add = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
      d.add({0, 0, phase, "part", slot, arg, 0}, t).op = "rope";
    };
    for (const std::int64_t heads : {4, 2}) {
      const bool is_q = heads == 4;
      const Tensor x = normal_tensor(DType::float32, {2, heads, 6, 8}, is_q ? 1 : 2);
      const Tensor g = normal_tensor(DType::float32, {2, heads, 6, 8}, is_q ? 3 : 4);
      add(f, "input", is_q ? "query" : "key", x);
      const Tensor y = output("rope", {{"x", x}}, {}, "y");
      add(f, "output", is_q ? "0" : "1", is_actual && !is_q ? with_one_wrong(y) : y);
      add(b, "grad_output", is_q ? "0" : "1", g);
      const Tensor of_x = output("rope", {{"x", x}, {"grad_y", g}}, {}, "grad_x");
      add(b, "grad_input", is_q ? "query" : "key", is_actual && is_q ? with_one_wrong(of_x) : of_x);
    }
  };
  EXPECT_EQ(created(isolated(record)), (std::vector<std::string>{"part grad_input query", "part output 1"}));
  EXPECT_EQ(isolated(record).coverage->unjudged, 0);
}

}  // namespace
}  // namespace assay::unknown_class_test
