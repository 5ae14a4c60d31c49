// A token that a module holds, joined with patches, and what is cut off again: vision transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::joined_rows_test {
namespace {

constexpr std::int64_t samples = 2, patches = 4, width = 16;
constexpr std::int64_t places = patches + 1, row = places * width;

// In float32; the broken one has one element of another value in one micro-batch.
class Joined {
 public:
  Joined(MemoryDump& dump, std::string broken) : dump_(dump), broken_(std::move(broken)) {}

  void record() {
    const Values token = drawn(1, width);
    dump_.add({0, -1, Phase::forward, "emb", "param", "token", 0},
              Tensor::from_values(DType::float32, {1, 1, width}, token));
    Values of_token(width, 0);
    for (micro_batch_ = 0; micro_batch_ < 2; ++micro_batch_) {
      Values joined;
      const Values parts = drawn(2, samples * patches * width);
      put(Phase::forward, "emb.cut", "output", channels_first(parts), {samples, width, patches});
      for (std::int64_t b = 0; b < samples; ++b) {
        joined.insert(joined.end(), token.begin(), token.end());
        joined.insert(joined.end(), parts.begin() + b * patches * width,
                      parts.begin() + (b + 1) * patches * width);
      }
      put(Phase::forward, "body", "input", joined, {samples, places, width});
      const Values made =
          put(Phase::forward, "body", "output", drawn(3, samples * row), {samples, places, width});
      Values first;
      for (std::int64_t b = 0; b < samples; ++b)
        first.insert(first.end(), made.begin() + b * row, made.begin() + b * row + width);
      put(Phase::forward, "head", "input", first, {samples, width});
      put(Phase::forward, "head", "output", drawn(4, samples * 3), {samples, 3});

      const Values of_first =
          put(Phase::backward, "head", "grad_input", drawn(5, samples * width), {samples, width});
      Values of_made(static_cast<std::size_t>(samples * row), 0);
      for (std::int64_t b = 0; b < samples; ++b)
        std::copy_n(of_first.begin() + b * width, width, of_made.begin() + b * row);
      put(Phase::backward, "body", "grad_output", of_made, {samples, places, width});
      const Values of_joined =
          put(Phase::backward, "body", "grad_input", drawn(6, samples * row), {samples, places, width});
      Values of_parts;
      for (std::int64_t b = 0; b < samples; ++b) {
        const auto begin = of_joined.begin() + b * row;
        for (std::int64_t j = 0; j < width; ++j) of_token[static_cast<std::size_t>(j)] += begin[j];
        of_parts.insert(of_parts.end(), begin + width, begin + row);
      }
      put(Phase::backward, "emb.cut", "grad_output", channels_first(of_parts), {samples, width, patches});
    }
    if (broken_ == "emb grad token") of_token[5] += 1;
    // Not the same bits, so that it is judged.
    if (broken_ == "a rounding") of_token[3] *= 1 + 0x1p-23;
    dump_.add({0, -1, Phase::backward, "emb", "grad", "token", 0},
              Tensor::from_values(DType::float32, {1, 1, width}, of_token));
  }

 private:
  Values put(Phase phase, const std::string& module, const std::string& slot, Values values, Shape shape) {
    if (micro_batch_ == 1 && module + " " + slot == broken_) values[5] += 1;
    const Tensor t = Tensor::from_values(DType::float32, shape, values);
    dump_.add({0, micro_batch_, phase, module, slot, slot.ends_with("output") ? "y" : "x", 0}, t);
    return t.values();
  }
  // As a convolution makes patches.
  static Values channels_first(const Values& v) {
    Values turned;
    for (std::int64_t b = 0; b < samples; ++b) {
      for (std::int64_t j = 0; j < width; ++j) {
        for (std::int64_t p = 0; p < patches; ++p)
          turned.push_back(v[static_cast<std::size_t>((b * patches + p) * width + j)]);
      }
    }
    return turned;
  }
  Values drawn(std::uint64_t seed, std::int64_t size) const {
    return normal_tensor(DType::float32, {size}, seed + 100 * static_cast<std::uint64_t>(micro_batch_))
        .values();
  }

  MemoryDump& dump_;
  std::string broken_;
  std::int64_t micro_batch_ = 0;
};

std::vector<std::string> created_with(const std::string& broken) {
  return created(
      isolated([&](MemoryDump& d, bool is_actual) { Joined(d, is_actual ? broken : "").record(); }));
}

TEST(JoinedRows, ARightRunPasses) {
  const Report report =
      isolated([](MemoryDump& d, bool is_actual) { Joined(d, is_actual ? "a rounding" : "").record(); });
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(finding(report, "emb", "grad").unjudged, "");
}

TEST(JoinedRows, OneWrongElementIsFoundWhereItIsMade) {
  for (const std::string wrong : {"body input", "head input", "body grad_output", "emb.cut grad_output"}) {
    const std::vector<std::string> found = created_with(wrong);
    ASSERT_EQ(found.size(), 1) << wrong;
    EXPECT_TRUE(found.front().starts_with(wrong)) << found.front();
  }
  EXPECT_EQ(created_with("emb grad token"), std::vector<std::string>{"emb grad token"});
}

// What a program returns, too, in another order, goes into no loss: two heads of one product, as CLIP's.
TEST(JoinedRows, AResultWithoutAGradientGivesNothingBack) {
  const auto record = [](bool is_wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1}) {
        const auto seed = static_cast<std::uint64_t>(10 * mb);
        const Tensor logits = normal_tensor(DType::float32, {4, 6}, 1 + seed),
                     g = normal_tensor(DType::float32, {4, 6}, 2 + seed);
        Values turned;
        for (std::int64_t j = 0; j < 6; ++j) {
          for (std::int64_t i = 0; i < 4; ++i) turned.push_back(logits.value(i * 6 + j));
        }
        const auto put = [&](Phase phase, const char* module, const char* slot, const char* arg,
                             const Tensor& t) {
          d.add({0, mb, phase, module, slot, arg, 0}, t);
        };
        put(Phase::forward, "scale", "output", "y", logits);
        put(Phase::forward, "loss", "input", "x", logits);
        put(Phase::forward, "", "output", "turned", Tensor::from_values(DType::float32, {6, 4}, turned));
        put(Phase::forward, "", "output", "logits", logits);
        put(Phase::backward, "", "grad_output", "logits", g);
        put(Phase::backward, "loss", "grad_input", "x", g);
        put(Phase::backward, "scale", "grad_output", "y", is_wrong && is_actual ? with_one_wrong(g) : g);
      }
    };
  };
  EXPECT_EQ(created(isolated(record(true))), (std::vector<std::string>(2, "scale grad_output y")));
  EXPECT_EQ(isolated(record(false)).exit_status(), 0);
}

// One number goes on from call to call, and is the loss at the end.
TEST(JoinedRows, ANumberIsTheOneThatWasMade) {
  const auto record = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1, 2}) {
        const auto put = [&](const char* module, const char* slot, const char* arg, double value) {
          if (is_actual && wrong == module + std::string(" ") + slot + " " + arg) value *= 1 + 0x1p-20;
          d.add({0, mb, Phase::forward, module, slot, arg, 0},
                Tensor::from_values(DType::float32, {}, {{value}}));
        };
        const double one = 2.3 + 0.7 * static_cast<double>(mb), sum = 3 * one + 1;
        put("cross_entropy()", "output", "loss", one);
        put("sum()", "input", "a", one);
        put("sum()", "output", "y", sum);
        put("loss", "loss", "lm", sum);
      }
    };
  };
  EXPECT_EQ(isolated(record("")).exit_status(), 0);
  for (const std::string wrong : {"sum() input a", "loss loss lm"})
    EXPECT_EQ(created(isolated(record(wrong))), std::vector<std::string>(3, wrong));
}

// Swin and vision adapters merge four neighbours of an image into one row, and its images have channels
// first.
auto merged(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    constexpr std::int64_t side = 4, channels = 8, half = side / 2;
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(10 * mb);
      const Tensor x = normal_tensor(DType::float32, {2, side * side, channels}, 1 + seed),
                   g = normal_tensor(DType::float32, {2, half * half, 4 * channels}, 2 + seed);
      Values y(static_cast<std::size_t>(g.size())), of_x(static_cast<std::size_t>(x.size())),
          image(static_cast<std::size_t>(x.size()));
      const bool is_late = is_actual && wrong == "neighbour";  // a column late
      for (std::int64_t n = 0; n < 2; ++n) {
        for (std::int64_t h = 0; h < side; ++h) {
          for (std::int64_t w = 0; w < side; ++w) {
            const std::int64_t piece = (h % 2) + 2 * (w % 2),
                               to = ((n * half + h / 2) * half + w / 2) * 4 + piece,
                               from = (n * side + h) * side + (is_late ? (w + 1) % side : w);
            for (std::int64_t c = 0; c < channels; ++c) {
              const auto at = static_cast<std::size_t>(from * channels + c);
              y[static_cast<std::size_t>(to * channels + c)] = x.value(from * channels + c);
              of_x[at] = g.value(to * channels + c);
              image[static_cast<std::size_t>(((n * channels + c) * side + h) * side + w)] =
                  x.value(((n * side + h) * side + w) * channels + c);
            }
          }
        }
      }
      if (is_actual && wrong == "channel") image[3] = image[4];
      const auto put = [&](Phase phase, const char* module, const char* slot, const Shape& shape,
                           const Values& values) {
        d.add({0, mb, phase, module, slot, "x", 0}, Tensor::from_values(DType::float32, shape, values));
      };
      d.add({0, mb, Phase::forward, "block", "output", "y", 0}, x);
      put(Phase::forward, "merge", "input", g.shape(), y);
      put(Phase::forward, "image", "input", {2, channels, side, side}, image);
      d.add({0, mb, Phase::backward, "merge", "grad_input", "x", 0}, g);
      d.add({0, mb, Phase::backward, "block", "grad_output", "y", 0},
            Tensor::from_values(DType::float32, x.shape(), of_x));
    }
  };
}

TEST(JoinedRows, NeighboursSideBySideAreRows) {
  const Report right = isolated(merged(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(created(isolated(merged("neighbour"))),
            (std::vector<std::string>{"merge input x", "block grad_output y", "merge input x",
                                      "block grad_output y"}));
  EXPECT_EQ(created(isolated(merged("channel"))), std::vector<std::string>(2, "image input x"));
}

}  // namespace
}  // namespace assay::joined_rows_test
