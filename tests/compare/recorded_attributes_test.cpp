// Calls whose attributes the recorder wrote down.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::recorded_attributes_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// Two products in one module, of parameters that the module around it holds.
auto experts(const std::string& wrong, const std::string& more = "") {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor up = normal_tensor(DType::float32, {3, 4, 6}, 1),
                 down = normal_tensor(DType::float32, {3, 6, 4}, 2),
                 x = normal_tensor(DType::float32, {3, 5, 4}, 3),
                 h = normal_tensor(DType::float32, {3, 5, 6}, 4),
                 g_up = normal_tensor(DType::float32, {3, 5, 6}, 5),
                 g_down = normal_tensor(DType::float32, {3, 5, 4}, 6);
    d.add({0, -1, f, "experts", "param", "up", 0}, up).op = "Experts";
    d.add({0, -1, f, "experts", "param", "down", 0}, down).op = "Experts";
    d.add({0, 0, f, "experts", "input", "x", 0}, x).op = "Experts";
    const auto add = [&](std::int64_t call, const std::string& equation, const Tensor& in, const Tensor& w,
                         const Tensor& g, const std::string& weight) {
      Attributes of_equation;
      of_equation.set("equation", equation);
      const auto made = compute_golden(find_operator("einsum"),
                                       std::vector<NamedTensor>{{"x_0", in}, {"x_1", w}, {"grad_y", g}},
                                       of_equation, Level::fp64);
      const auto record = [&](Phase phase, const char* slot, const std::string& arg, const Tensor& t) {
        Record& r = d.add({0, 0, phase, "experts.einsum()", slot, arg, call}, t);
        r.op = "einsum";
        r.attributes = R"({"equation":")" + equation + "\"" + more + "}";
      };
      const auto given = [&](const std::string& name) {
        const Tensor t = noisy(single(output_named(made, name)), is_actual ? 7 : 8);
        return is_actual && wrong == name + " " + weight ? with_one_wrong(t) : t;
      };
      record(f, "input", "x_0", in);
      record(f, "input", "x_1", w);
      record(f, "output", "y", given("y"));
      record(b, "grad_output", "y", g);
      record(b, "grad_input", "x_0", given("grad_x_0"));
      return given("grad_x_1");
    };
    const Tensor of_up = add(0, "ecm,emf->ecf", x, up, g_up, "up");
    const Tensor of_down = add(1, "ecf,efm->ecm", h, down, g_down, "down");
    d.add({0, -1, b, "experts", "grad", "up", 0}, of_up).op = "Experts";
    d.add({0, -1, b, "experts", "grad", "down", 0}, of_down).op = "Experts";
  };
}

TEST(RecordedAttributes, AnEquationJudgesWhatNoValuesShow) {
  const Report right = isolated(experts(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0) << right.coverage->why_unjudged.front();
  EXPECT_EQ(created(isolated(experts("y up"))), std::vector<std::string>{"experts.einsum() output y"});
  EXPECT_EQ(created(isolated(experts("grad_x_0 down"))),
            std::vector<std::string>{"experts.einsum() grad_input x_0"});
}

// Each of the calls has its own of the module's parameters.
TEST(RecordedAttributes, AParameterHasTheGradientOfTheCallsThatWereGivenIt) {
  EXPECT_EQ(created(isolated(experts("grad_x_1 up"))), std::vector<std::string>{"experts grad up"});
  EXPECT_EQ(created(isolated(experts("grad_x_1 down"))), std::vector<std::string>{"experts grad down"});
}

TEST(RecordedAttributes, ThoseThatAnOperatorHasNotAreTheRecorders) {
  EXPECT_EQ(isolated(experts("", R"(,"names":["a","b"],"path":{"a":null})")).exit_status(), 0);
}

TEST(RecordedAttributes, OfAnotherKindAreTrouble) {
  const auto sums = [](const std::string& dims) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = normal_tensor(DType::float32, {4, 5}, 1);
      for (const auto& [slot, t] :
           {std::pair<std::string, Tensor>{"input", x},
            {"output", noisy(output("reduce_sum", {{"x", x}}, {{"dims", 1}}, "y"), is_actual ? 7 : 8)}}) {
        Record& r = d.add({0, 0, f, "sum()", slot, slot == "input" ? "x" : "y", 0}, t);
        r.op = "reduce_sum";
        r.attributes = dims;
      }
    };
  };
  EXPECT_EQ(isolated(sums(R"({"dims":1})")).coverage->unjudged, 0);
  EXPECT_EQ(isolated(sums(R"({"dims":0})")).coverage->unjudged, 1) << "it has another shape then";
  for (const char* dims : {"99", "-1e300", "1.5", "[1,1]", "true", "\"b\"", "[]"})
    EXPECT_EQ(isolated(sums(fmt::format(R"({{"dims":{}}})", dims))).coverage->unjudged, 1) << dims;
  EXPECT_THROW(isolated(sums(R"({"dims":["b"]})")), Error);
}

}  // namespace
}  // namespace assay::recorded_attributes_test
