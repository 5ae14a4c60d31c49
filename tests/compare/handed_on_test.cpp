// What a module hands out as it was given it, and what it hands out twice: one tensor, which has one
// gradient.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::handed_on_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// A bottleneck: neck(h) = a, a, h with a = relu(h); attn(a, a, h) makes something of each.
auto bottleneck(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const auto put = [&](Phase phase, const std::string& module, const char* slot, const char* arg,
                           const Tensor& t, const char* op) {
        d.add({0, mb, phase, module, slot, arg, 0}, t).op = op;
      };
      const Tensor h = noisy(normal_tensor(DType::float32, {2, 12, 16}, 1 + seed), is_actual ? 5 : 6),
                   a = output("relu", {{"x", h}}, {}, "y");
      put(f, "block", "output", "y", h, "Block");
      put(f, "neck", "input", "h", h, "Neck");
      put(f, "neck.act", "input", "x", h, "relu");
      put(f, "neck.act", "output", "y", a, "relu");
      put(f, "neck", "output", "0", a, "Neck");
      put(f, "neck", "output", "1", a, "Neck");
      put(f, "neck", "output", "2", h, "Neck");
      struct Part {
        const char *arg, *op;
        const Tensor& given;
      };
      const std::vector<Part> parts = {{"q", "silu", a}, {"k", "gelu", a}, {"v", "sigmoid", h}};
      for (const Part& p : parts) put(f, "attn", "input", p.arg, p.given, "Attention");
      std::vector<Tensor> given_back;
      for (const Part& p : parts) {
        std::vector<NamedTensor> inputs = {{"x", p.given}};
        put(f, std::string("attn.") + p.arg, "input", "x", p.given, p.op);
        const Tensor y = output(p.op, inputs, {}, "y");
        put(f, std::string("attn.") + p.arg, "output", "y", y, p.op);
        inputs.push_back(
            {"grad_y", noisy(normal_tensor(DType::float32, y.shape(), 2 + seed + given_back.size()),
                             is_actual ? 7 : 8)});
        put(b, std::string("attn.") + p.arg, "grad_output", "y", inputs.back().tensor, p.op);
        given_back.push_back(output(p.op, inputs, {}, "grad_x"));
        put(b, std::string("attn.") + p.arg, "grad_input", "x", given_back.back(), p.op);
      }
      const bool is_wrong = is_actual && mb == 1;
      // One of the two names under which it is used is forgotten.
      Tensor of_a = is_wrong && wrong == "k" ? given_back[0] : plus(given_back[0], 1, given_back[1]);
      if (is_wrong && wrong == "one element") of_a = with_one_wrong(of_a);
      put(b, "neck.act", "grad_output", "y", of_a, "relu");
      put(b, "neck", "grad_output", "0", of_a, "Neck");
      put(b, "neck", "grad_output", "1", of_a, "Neck");
      const Tensor through = output("relu", {{"x", h}, {"grad_y", of_a}}, {}, "grad_x");
      put(b, "neck.act", "grad_input", "x", through, "relu");
      Tensor of_h = is_wrong && wrong == "v"
                        ? through
                        : plus(through, is_wrong && wrong == "factor" ? 1.01 : 1, given_back[2]);
      put(b, "block", "grad_output", "y", of_h, "Block");
      put(b, "neck", "grad_output", "2", of_h, "Neck");
    }
  };
}

TEST(HandedOn, HasOneGradient) {
  const Report right = isolated(bottleneck(""));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& found : right.findings) {
    if (found.id.slot == "grad_output" && !found.id.module.starts_with("attn")) {
      EXPECT_EQ(found.unjudged, "") << found.name;
    }
  }
  for (const auto& [wrong, first] : {std::pair("k", "neck.act grad_output y"),
                                     {"one element", "neck.act grad_output y"},
                                     {"v", "block grad_output y"},
                                     {"factor", "block grad_output y"}}) {
    const std::vector<std::string> made = created(isolated(bottleneck(wrong)));
    ASSERT_FALSE(made.empty()) << wrong;
    EXPECT_EQ(made.front(), first) << wrong;
  }
}

// What an identity was given [1, 12, 16] goes on without it, too; what it gave is [12, 16].
auto identity(bool one_wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    const auto put = [&](Phase phase, const char* module, const char* slot, const char* arg, const Tensor& t,
                         const char* op) {
      d.add({0, 0, phase, module, slot, arg, 0}, t).op = op;
    };
    const Tensor h = noisy(normal_tensor(DType::float32, {1, 12, 16}, 1), is_actual ? 5 : 6),
                 flat = h.reshaped({12, 16});
    put(f, "block", "output", "y", h, "Block");
    put(f, "neck", "input", "input", flat, "Identity");
    put(f, "neck", "output", "y", flat, "Identity");
    const auto used = [&](const char* module, const char* op, const Tensor& x, std::uint64_t seed) {
      put(f, module, "input", "x", x, op);
      const Tensor y = output(op, {{"x", x}}, {}, "y"),
                   g = noisy(normal_tensor(DType::float32, x.shape(), seed), is_actual ? 7 : 8);
      put(f, module, "output", "y", y, op);
      put(b, module, "grad_output", "y", g, op);
      const Tensor back = output(op, {{"x", x}, {"grad_y", g}}, {}, "grad_x");
      put(b, module, "grad_input", "x", back, op);
      return back;
    };
    const Tensor behind = used("experts", "silu", flat, 2), beside = used("shared", "gelu", h, 3);
    const Tensor of_neck = one_wrong && is_actual ? with_one_wrong(behind) : behind;
    put(b, "neck", "grad_output", "y", of_neck, "Identity");
    put(b, "neck", "grad_input", "input", of_neck, "Identity");
    put(b, "block", "grad_output", "y", plus(of_neck.reshaped(h.shape()), 1, beside), "Block");
  };
}

TEST(HandedOn, ByAnIdentityIsWhatHasItsShape) {
  const Report right = isolated(identity(false));
  EXPECT_EQ(right.exit_status(), 0);
  for (const Finding& found : right.findings) {
    if (found.id.slot == "grad_output" && (found.id.module == "neck" || found.id.module == "block")) {
      EXPECT_EQ(found.unjudged, "") << found.name;
    }
  }
  EXPECT_EQ(created(isolated(identity(true))), std::vector<std::string>{"neck grad_output y"});
}

}  // namespace
}  // namespace assay::handed_on_test
