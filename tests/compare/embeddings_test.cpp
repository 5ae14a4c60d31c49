// What a model makes of its embeddings: neighbours side by side, and sums with what all sequences share.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "isolated.h"

namespace assay::embeddings_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;
constexpr std::int64_t sequences = 2, places = 8, width = 16, pieces = 3;

// Each token between its neighbours, zeros beyond the ends. `turned`: the neighbours are exchanged.
template <class F>
void for_each_neighbour(bool turned, F place) {
  for (std::int64_t s = 0; s < sequences; ++s) {
    for (std::int64_t t = 0; t < places; ++t) {
      for (std::int64_t p = 0; p < pieces; ++p) {
        const std::int64_t from = t + (turned ? p - 1 : 1 - p);
        if (from < 0 || from >= places) continue;
        for (std::int64_t c = 0; c < width; ++c)
          place(static_cast<std::size_t>((s * places + from) * width + c),
                static_cast<std::size_t>(((s * places + t) * pieces + p) * width + c));
      }
    }
  }
}

// Some tokens are there twice, other ones in each micro-batch.
auto model(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1}) {
      const auto seed = static_cast<std::uint64_t>(20 * mb);
      const bool is_wrong = is_actual && mb == 1;
      const auto some = [&](const Shape& shape, std::uint64_t number) {
        return noisy(normal_tensor(DType::float32, shape, number + seed), is_actual ? 40 : 41);
      };
      const auto put = [&](Phase phase, const char* module, const char* slot, const Tensor& t) {
        d.add({0, mb, phase, module, slot,
               slot == std::string("input") || slot == std::string("grad_input") ? "x" : "y", 0},
              t);
      };
      const Shape of_words = {sequences, places, width}, of_sides = {sequences, places, pieces * width};
      Values words = some(of_words, 1).values();
      for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{2 + mb, 9 + mb}, {3, 6 - mb}})
        std::copy_n(words.begin() + from * width, width, words.begin() + to * width);
      put(f, "words", "output", Tensor::from_values(DType::float32, of_words, words));
      Values sides(static_cast<std::size_t>(sequences * places * pieces * width), 0);
      for_each_neighbour(is_wrong && wrong == "turned", [&](auto from, auto to) { sides[to] = words[from]; });
      put(f, "dense", "input", Tensor::from_values(DType::float32, of_sides, sides));
      const Tensor dense = some(of_words, 2), types = some(of_words, 3),
                   positions = some({1, places, width}, 4);
      put(f, "dense", "output", dense);
      put(f, "types", "output", types);
      put(f, "positions", "output", positions);
      const Tensor sum = plus(plus(dense, 1, types), is_wrong && wrong == "left out" ? 0 : 1, positions);
      put(f, "norm", "input", sum);

      const Tensor g = some(of_words, 5), of_sides_given = some(of_sides, 6);
      put(b, "norm", "grad_input", g);
      Values of_positions(static_cast<std::size_t>(places * width), 0);
      for (std::int64_t i = 0; i < g.size(); ++i)
        of_positions[static_cast<std::size_t>(i % (places * width))] += g.value(i);
      if (is_wrong && wrong == "one sequence")
        std::copy_n(g.values().begin(), places * width, of_positions.begin());
      put(b, "positions", "grad_output",
          Tensor::from_values(DType::float32, {1, places, width}, of_positions));
      put(b, "types", "grad_output", g);
      put(b, "dense", "grad_output", is_wrong && wrong == "element" ? with_one_wrong(g) : g);
      put(b, "dense", "grad_input", of_sides_given);
      Values of_each(words.size(), 0);
      const Values given = of_sides_given.values();
      for_each_neighbour(is_wrong && wrong == "gradient",
                         [&](auto from, auto to) { of_each[from] += given[to]; });
      put(b, "words", "grad_output", Tensor::from_values(DType::float32, of_words, of_each));
    }
  };
}

TEST(Embeddings, BetweenNeighboursAndInSumsAreJudged) {
  const Report right = isolated(model(""));
  EXPECT_EQ(right.exit_status(), 0);
  for (const auto& [module, slot] : {std::pair("dense", "input"),
                                     {"norm", "input"},
                                     {"positions", "grad_output"},
                                     {"types", "grad_output"},
                                     {"dense", "grad_output"},
                                     {"words", "grad_output"}})
    EXPECT_EQ(finding(right, module, slot).unjudged, "") << module << " " << slot;
  for (const auto& [wrong, first] : {std::pair("turned", "dense input x"),
                                     {"left out", "norm input x"},
                                     {"one sequence", "positions grad_output y"},
                                     {"element", "dense grad_output y"},
                                     {"gradient", "words grad_output y"}})
    EXPECT_EQ(created(isolated(model(wrong))), std::vector<std::string>{first}) << wrong;
}

}  // namespace
}  // namespace assay::embeddings_test
