// Values that are handed on as they are, and what may be taken for their use.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::copies_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// A module around which nothing is known, a dropout that drops nothing, and one that takes what it hands on.
// In one sequence a rotation by position would be none, too: dimension 0 has the position 0 alone.
Report of_dropout(const std::string& broken) {
  return isolated([&](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(mb);
      const Tensor x = normal_tensor(DType::bfloat16, {1, 16, 24}, 10 + seed),
                   g = normal_tensor(DType::bfloat16, {1, 16, 24}, 20 + seed);
      const auto put = [&](Phase phase, const std::string& module, const char* slot, const char* arg,
                           const Tensor& t) {
        const bool is_wrong = is_actual && mb == 1 && module + " " + slot + " " + arg == broken;
        const Tensor made = is_wrong ? with_one_wrong(t) : t;
        d.add({0, mb, phase, module, slot, arg, 0}, made).op = module == "drop" ? "Dropout" : "";
        return made;
      };
      Tensor v = put(f, "first", "output", "y", x);
      v = put(f, "drop", "input", "input", v);
      v = put(f, "drop", "output", "y", v);
      put(f, "last", "input", "x", v);
      v = put(b, "last", "grad_input", "x", g);
      v = put(b, "drop", "grad_output", "y", v);
      v = put(b, "drop", "grad_input", "input", v);
      put(b, "first", "grad_output", "y", v);
    }
  });
}

TEST(Copies, OfADropoutThatDropsNothingAreNoRotation) {
  const Report right = of_dropout("");
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "drop", "output").unjudged, "");
  for (const std::string wrong : {"drop input input", "drop output y", "last input x", "drop grad_output y",
                                  "drop grad_input input", "first grad_output y"}) {
    const Report report = of_dropout(wrong);
    EXPECT_EQ(created(report), std::vector{wrong});
    for (const Finding& x : report.findings)
      EXPECT_EQ(x.origin.value_or(Origin{}).reason.find("rope"), std::string::npos) << wrong;
  }
}

// Scores that hardly differ fit a rotation by any numbers; a value that has a gradient is none of its tables.
TEST(Copies, OfAValueWithAGradientAreNoTable) {
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        const Tensor x = normal_tensor(DType::bfloat16, {1, 32, 32}, 10 + seed),
                     other = normal_tensor(DType::bfloat16, {1, 32, 32}, 20 + seed),
                     qkv = normal_tensor(DType::bfloat16, {1, 32, 96}, 30 + seed, 0.001),
                     g = normal_tensor(DType::bfloat16, {1, 32, 32}, 40 + seed),
                     of_x = normal_tensor(DType::bfloat16, {1, 32, 32}, 50 + seed);
        const auto made = compute_golden(find_operator("qkv_attention"),
                                         std::vector<NamedTensor>{{"qkv", qkv}, {"grad_out", g}},
                                         {{"heads", 4}}, Level::fp64);
        const auto narrow = [&](std::string_view name) {
          const Tensor t = output_named(made, name);
          return Tensor::from_values(DType::bfloat16, t.shape(), t.values());
        };
        d.add({0, mb, f, "other", "output", "y", 0}, other);
        d.add({0, mb, f, "norm", "output", "y", 0}, x);
        d.add({0, mb, f, "attn.c_attn", "input", "x", 0}, x);
        d.add({0, mb, f, "attn.c_attn", "output", "y", 0}, qkv);
        d.add({0, mb, f, "attn.c_proj", "input", "x", 0}, narrow("out"));
        d.add({0, mb, b, "attn.c_proj", "grad_input", "x", 0}, g);
        d.add({0, mb, b, "attn.c_attn", "grad_output", "y", 0}, narrow("grad_qkv"));
        d.add({0, mb, b, "attn.c_attn", "grad_input", "x", 0}, of_x);
        d.add({0, mb, b, "norm", "grad_output", "y", 0}, is_wrong && is_actual ? with_one_wrong(of_x) : of_x);
        d.add({0, mb, b, "other", "grad_output", "y", 0}, of_x);
      }
    };
  };
  const Report right = isolated(record(false)), wrong = isolated(record(true));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "attn.c_proj", "input").unjudged, "");
  EXPECT_EQ(created(wrong), std::vector<std::string>(2, "norm grad_output y"));
  EXPECT_EQ(wrong.coverage->unjudged, 4) << "those of c_attn, which has no known operator";
}

}  // namespace
}  // namespace assay::copies_test
