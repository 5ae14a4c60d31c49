// Products that a program makes in its own code, in no module: of another module's table, and of parts of
// values.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "isolated.h"

namespace assay::own_products_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// hidden @ embedding.weight.T, what the norm before it is given back, and the table's gradient: the sum of
// that of looking up and that of the product.
auto tied(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t vocabulary = 40, width = 16, tokens = 24;
    const Tensor w = normal_tensor(DType::float32, {vocabulary, width}, 1);
    d.add({0, -1, f, "wte", "param", "weight", 0}, w).op = "embedding";
    Values sum(static_cast<std::size_t>(w.size()));
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < tokens; ++i) ids.push_back((7 * i + mb) % vocabulary);
      const Tensor index = Tensor::from_indices({1, tokens}, ids),
                   of_rows = normal_tensor(DType::float32, {1, tokens, width}, 2 + seed),
                   x = normal_tensor(DType::float32, {1, tokens, width}, 3 + seed),
                   g = normal_tensor(DType::float32, {1, tokens, vocabulary}, 4 + seed);
      const std::vector<NamedTensor> looked_up = {{"weight", w}, {"index", index}, {"grad_y", of_rows}},
                                     product = {{"x", x}, {"w", w}, {"grad_y", g}};
      const auto made = [&](const std::string& result) {
        const Tensor t = noisy(output("linear", product, {}, result), is_actual ? 7 : 8);
        return is_actual && wrong == result ? with_one_wrong(t) : t;
      };
      const auto put = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, mb, phase, "wte", slot, arg, 0}, t).op = "embedding";
      };
      put(f, "input", "index", index);
      put(f, "output", "y", output("embedding", looked_up, {}, "y"));
      d.add({0, mb, f, "ln_f", "output", "y", 0}, x);
      d.add({0, mb, f, "", "output", "y", 0}, made("y")).op = "Program";
      d.add({0, mb, b, "", "grad_output", "y", 0}, g).op = "Program";
      d.add({0, mb, b, "ln_f", "grad_output", "y", 0}, made("grad_x"));
      put(b, "grad_output", "y", of_rows);
      const Tensor of_lookup = output("embedding", looked_up, {}, "grad_weight"),
                   of_product = output("linear", product, {}, "grad_w");
      // The faulty side hands nothing back to the table that it multiplies by.
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        sum[i] += of_lookup.value(at) + (is_actual && wrong == "detached" ? 0 : of_product.value(at));
      }
    }
    Tensor total = Tensor::from_values(DType::float32, w.shape(), sum);
    if (is_actual) total = noisy(total, 9);
    d.add({0, -1, b, "wte", "grad", "weight.unreduced", 0}, total).op = "embedding";
  };
}

TEST(OwnProducts, OfAnotherModulesTableAreJudged) {
  const Report right = isolated(tied(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "", "output").unjudged, "");
  EXPECT_EQ(finding(right, "ln_f", "grad_output").unjudged, "");
  EXPECT_EQ(finding(right, "wte", "grad").unjudged, "");
  EXPECT_EQ(created(isolated(tied("y"))), std::vector<std::string>(2, " output y"));
  EXPECT_EQ(created(isolated(tied("grad_x"))), std::vector<std::string>(2, "ln_f grad_output y"));
  EXPECT_EQ(created(isolated(tied("detached"))), std::vector<std::string>{"wte grad weight.unreduced"});
}

// hidden @ cat(embedding.weight.T, extra) + bias: MobileBERT's logits, of an embedding that is narrower.
auto extended(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t vocabulary = 40, narrow = 8, width = 16, tokens = 24;
    const Tensor w = normal_tensor(DType::float32, {vocabulary, narrow}, 1),
                 v = normal_tensor(DType::float32, {width - narrow, vocabulary}, 2),
                 bias = normal_tensor(DType::float32, {vocabulary}, 3);
    d.add({0, -1, f, "wte", "param", "weight", 0}, w).op = "embedding";
    d.add({0, -1, f, "head.extra", "param", "weight", 0}, v);
    d.add({0, -1, f, "head", "param", "bias", 0}, bias);
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < tokens; ++i) ids.push_back((7 * i + mb) % vocabulary);
      const Tensor index = Tensor::from_indices({1, tokens}, ids);
      const std::vector<NamedTensor> product = {
          {"x", normal_tensor(DType::float32, {1, tokens, width}, 4 + seed)},
          {"w", w},
          {"v", v},
          {"b", bias},
          {"grad_y", normal_tensor(DType::float32, {1, tokens, vocabulary}, 5 + seed)}};
      const auto made = [&](const std::string& result) {
        const Tensor t = noisy(output("extended_linear", product, {}, result), is_actual ? 7 : 8);
        return is_actual && wrong == result ? with_one_wrong(t) : t;
      };
      d.add({0, mb, f, "wte", "input", "index", 0}, index).op = "embedding";
      d.add({0, mb, f, "wte", "output", "y", 0},
            output("embedding", {{"weight", w}, {"index", index}}, {}, "y"))
          .op = "embedding";
      d.add({0, mb, f, "ln_f", "output", "y", 0}, product[0].tensor);
      d.add({0, mb, f, "head", "output", "y", 0}, made("y")).op = "Head";
      d.add({0, mb, b, "head", "grad_output", "y", 0}, product[4].tensor).op = "Head";
      d.add({0, mb, b, "ln_f", "grad_output", "y", 0}, made("grad_x"));
    }
  };
}

TEST(OwnProducts, OfATableWithWeightsBesideItAreJudged) {
  const Report right = isolated(extended(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "head", "output").unjudged, "");
  EXPECT_EQ(finding(right, "ln_f", "grad_output").unjudged, "");
  EXPECT_EQ(created(isolated(extended("y"))), std::vector<std::string>(2, "head output y"));
  EXPECT_EQ(created(isolated(extended("grad_x"))), std::vector<std::string>(2, "ln_f grad_output y"));
}

struct Shown {
  std::string wrong;
  std::vector<std::string> created;
};

// LFM2's short convolution: B, C, x = in(h).T.chunk(3); out((C * conv(B * x)[..., :tokens]).T). The
// convolution is padded on both sides, and the gradient of what was cut off is 0.
auto gated(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t tokens = 12, width = 8, cut = 2;
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const Tensor in = normal_tensor(DType::float32, {2, tokens, 3 * width}, 1 + seed),
                   conv = normal_tensor(DType::float32, {2, width, tokens + cut}, 2 + seed),
                   g = normal_tensor(DType::float32, {2, tokens, width}, 3 + seed),
                   of_given = normal_tensor(DType::float32, {2, width, tokens}, 4 + seed);
      const bool is_wrong = is_actual && !wrong.empty();
      const std::int64_t first = is_wrong && wrong == "slice" ? 1 : 0,  // a token late
          gate = is_wrong && wrong == "chunk" ? 2 : 1;                  // x instead of C
      const double scale = is_wrong && wrong == "scale" ? 1.02 : 1;
      Values given(static_cast<std::size_t>(of_given.size())), y(static_cast<std::size_t>(g.size())),
          of_in(static_cast<std::size_t>(in.size())), of_conv(static_cast<std::size_t>(conv.size()));
      for (std::int64_t n = 0; n < 2; ++n) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t c = 0; c < width; ++c) {
            const std::int64_t at = (n * tokens + t) * width + c, turned = (n * width + c) * tokens + t,
                               behind = (n * width + c) * (tokens + cut) + t + first;
            const auto of_part = [&](std::int64_t k) { return (n * tokens + t) * 3 * width + k * width + c; };
            given[static_cast<std::size_t>(turned)] = in.value(of_part(0)) * in.value(of_part(2));
            y[static_cast<std::size_t>(at)] = scale * in.value(of_part(gate)) * conv.value(behind);
            of_conv[static_cast<std::size_t>(behind)] = scale * g.value(at) * in.value(of_part(gate));
            of_in[static_cast<std::size_t>(of_part(0))] = of_given.value(turned) * in.value(of_part(2));
            of_in[static_cast<std::size_t>(of_part(2))] = of_given.value(turned) * in.value(of_part(0));
            of_in[static_cast<std::size_t>(of_part(gate))] += scale * g.value(at) * conv.value(behind);
          }
        }
      }
      const auto put = [&](Phase phase, const char* module, const char* slot, const char* arg,
                           const Shape& shape, const Values& values) {
        d.add({0, mb, phase, module, slot, arg, 0}, Tensor::from_values(DType::float32, shape, values));
      };
      d.add({0, mb, f, "mix.in", "output", "y", 0}, in);
      put(f, "mix.conv", "input", "x", of_given.shape(), given);
      d.add({0, mb, f, "mix.conv", "output", "y", 0}, conv);
      put(f, "mix.out", "input", "x", g.shape(), y);
      d.add({0, mb, b, "mix.out", "grad_input", "x", 0}, g);
      put(b, "mix.conv", "grad_output", "y", conv.shape(), of_conv);
      d.add({0, mb, b, "mix.conv", "grad_input", "x", 0}, of_given);
      put(b, "mix.in", "grad_output", "y", in.shape(), of_in);
    }
  };
}

TEST(OwnProducts, OfPartsOfValuesAreJudged) {
  const Report right = isolated(gated(""));
  EXPECT_EQ(right.exit_status(), 0);
  for (const auto& [module, slot] : {std::pair("mix.conv", "input"),
                                     {"mix.out", "input"},
                                     {"mix.conv", "grad_output"},
                                     {"mix.in", "grad_output"}})
    EXPECT_EQ(finding(right, module, slot).unjudged, "") << module << " " << slot;
  for (const Shown& s :
       {Shown{"slice", {"mix.out input x", "mix.conv grad_output y", "mix.in grad_output y"}},
        Shown{"chunk", {"mix.out input x", "mix.conv grad_output y", "mix.in grad_output y"}},
        Shown{"scale", {"mix.out input x", "mix.conv grad_output y", "mix.in grad_output y"}}}) {
    std::vector<std::string> twice = s.created;
    twice.insert(twice.end(), s.created.begin(), s.created.end());
    EXPECT_EQ(created(isolated(gated(s.wrong))), twice) << s.wrong;
  }
}

}  // namespace
}  // namespace assay::own_products_test
