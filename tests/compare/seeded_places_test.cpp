#include <numeric>

#include "seeded_fault.h"

namespace assay::seeded_places_test {
namespace {

// Slice j of the middle dimension of [outer, count, inner] holds the right slice source(j); -1: zeros.
Fault moved(const std::string& name, std::int64_t count, std::int64_t inner,
            const std::function<std::int64_t(std::int64_t)>& source, const std::string& text,
            const Shape& shape = {R, C}) {
  return {name,
          [=](const Values& v) {
            return map_index(v, [=](std::int64_t at) {
              const std::int64_t j = at / inner % count, from = source(j);
              return from < 0 ? -1 : at + (from - j) * inner;
            });
          },
          text, shape};
}

// Elements of the region hold something else.
Fault wrong(const std::string& name, const std::function<bool(std::int64_t row, std::int64_t column)>& region,
            const std::string& pattern, const Shape& shape = {R, C}) {
  return {name,
          [=](Values v) {
            Random random(77);
            const std::int64_t columns = shape.back();
            for (std::size_t i = 0; i < v.size(); ++i) {
              const auto at = static_cast<std::int64_t>(i);
              if (region(at / columns, at % columns)) v[i] = 3 * random.normal();
            }
            return v;
          },
          "errors: " + pattern, shape};
}

std::int64_t shuffled(std::int64_t j, std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  for (std::size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1))]);
  return order[static_cast<std::size_t>(j)];
}

TEST(SeededFaults, Order) {
  const std::int64_t half = C / 2;
  expect_diagnosed({
      moved(
          "two rows", R, C, [](auto j) { return j == 3    ? 11
                                                : j == 11 ? 3
                                                          : j; }, "permuted: rows 3 and 11"),
      moved(
          "two columns", C, 1, [](auto j) { return j == 0   ? 9
                                                   : j == 9 ? 0
                                                            : j; },
          "permuted: columns 0 and 9"),
      moved(
          "rows at random", R, C, [](auto j) { return shuffled(j, R, 5); }, "permuted: "),
      moved(
          "columns backwards", C, 1, [](auto j) { return C - 1 - j; },
          "permuted: the columns are in reversed order"),
      moved(
          "ranks in another order", 4, R / 4 * C, [](auto j) { return (j + 1) % 4; },
          "permuted: the rows are rolled by -12"),
      moved(
          "labels not shifted", R, C, [](auto j) { return j - 1; }, "shifted: the rows are shifted by 1"),
      moved(
          "gate and up by turns", C, 1, [=](auto j) { return j % 2 * half + j / 2; },
          "permuted: interleaved"),
      moved(
          "heads of q, k, v", R, C, [](auto j) { return j % 3 * (R / 3) + j / 3; }, "permuted: interleaved"),
      moved(
          "one row for all", R, C, [](auto) { return 7; }, "repeated: "),
      moved("kv heads repeated by turns", 8, 8, [](auto j) { return j % 2; }, "repeated: ", {R, C}),
      {"transposed",
       [](const Values& v) { return map_index(v, [](auto i) { return i % C * C + i / C; }); },
       "transposed: the matrix is transposed",
       {C, C}},
      {"read in the wrong order",
       [](const Values& v) { return map_index(v, [](auto i) { return i % R * C + i / R; }); },
       "transposed: holds the elements in the order of the transpose"},
  });
}

TEST(SeededFaults, Places) {
  expect_diagnosed({
      wrong(
          "one shard", [](auto r, auto) { return r / 12 == 1; }, "rows 12..23 (= shard 1 of 4 by dp): "),
      wrong(
          "one row", [](auto r, auto) { return r == 5; }, "row 5: "),
      wrong(
          "one head", [](auto, auto c) { return c / 16 == 2; }, "columns 32..47 (= shard 2 of 4 by dp): "),
      wrong("one expert", [](auto r, auto) { return r / 8 == 3; }, "index 3 of dim 0: ", {6, 8, C}),
      wrong(
          "one tile", [](auto r, auto c) { return r / 16 == 2 && c / 16 == 1; },
          "the last 16 rows (= shard 2 of 3 by cp) and columns 16..31 (= shard 1 of 4 by dp): "),
      wrong(
          "the last tile", [](auto, auto c) { return c >= 48; },
          "the last 16 columns (= shard 3 of 4 by dp): "),
      wrong(
          "every eighth row", [](auto r, auto) { return r % 8 == 3; }, "every 8th row (index = 3 mod 8): "),
      wrong(
          "every other column", [](auto, auto c) { return c % 2 == 1; },
          "every 2nd column (index = 1 mod 2): "),
  });
}

}  // namespace
}  // namespace assay::seeded_places_test
