#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "../dumps/scratch.h"
#include "assay/compare/rules/rules.h"
#include "assay/dumps/layout/layout_rules.h"
#include "assay/dumps/layout/merge.h"
#include "memory_dump.h"

// Dumps that say nothing of their ranks, put together by a rules file. Each tensor counts 0, 1, 2, ..; what a
// rank holds of it stands here as plain index arithmetic.
namespace assay::layout_rules_test {
namespace {

using testing::HasSubstr;

LayoutRules layout(const std::string& toml) {
  const Scratch folder;
  return Rules::load(folder.write("rules.toml", toml).string()).layout();
}

struct Held {
  Shape shape;
  std::vector<std::int64_t> elements;  ///< flat indices of the whole tensor; -1: padding
};

/// Ranks as plain files, "rank3/name": one file per rank.
class Ranks : public MemoryDump {
 public:
  Ranks() : MemoryDump("ranks") {}
  void add_part(std::size_t rank, const std::string& name, const Held& held, double scale = 1) {
    std::vector<double> values;
    for (const std::int64_t e : held.elements) values.push_back(e < 0 ? -99 : scale * static_cast<double>(e));
    add(fmt::format("rank{}/{}", rank, name), Tensor::from_values(DType::float32, held.shape, values));
  }
  void add_indices(std::size_t rank, const std::string& name, const std::vector<std::int64_t>& rows) {
    add(fmt::format("rank{}/{}", rank, name),
        Tensor::from_indices({static_cast<std::int64_t>(rows.size())}, rows));
  }
};

// The rows given, of a matrix of so many columns.
Held rows_of(const std::vector<std::int64_t>& rows, std::int64_t columns) {
  Held held{{static_cast<std::int64_t>(rows.size()), columns}, {}};
  for (const std::int64_t r : rows) {
    for (std::int64_t c = 0; c < columns; ++c) held.elements.push_back(r < 0 ? -1 : r * columns + c);
  }
  return held;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

void expect_whole(const Dump& dump, const std::string& name, const Shape& shape) {
  SCOPED_TRACE(name);
  for (const LogicalTensor& t : logical_tensors(dump)) {
    if (t.id.module != name) continue;
    EXPECT_EQ(t.shape, shape);
    const Merged merged = merge(dump, t);
    EXPECT_TRUE(merged.replicas.empty());
    const std::vector<double> values = merged.tensor.whole().values();
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), element_count(shape));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<double>(i));
    return;
  }
  ADD_FAILURE() << "there is none";
}

constexpr const char* two_ranks = R"(
[[mesh]]
dims = ["tp"]
shape = [2]
rank = '^rank(\d+)/'
)";

TEST(LayoutRules, TwoRanks) {
  Ranks dump;
  for (std::int64_t r = 0; r < 2; ++r) {
    const auto rank = static_cast<std::size_t>(r);
    dump.add_part(rank, "qkv", rows_of(range(4 * r, 4 * r + 4), 3));
    dump.add_part(rank, "uneven", rows_of(r == 0 ? range(0, 1) : range(1, 5), 2));
    dump.add_part(rank, "norm", {{3}, {0, 1, 2}});
    Held columns{{2, 2}, {}};
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t c = 0; c < 2; ++c) columns.elements.push_back(row * 4 + 2 * r + c);
    }
    dump.add_part(rank, "proj", columns);
    dump.add_part(rank, "sum", {{4}, {0, 1, 2, 3}}, r == 0 ? 3 : -2);
    dump.add_part(rank, "sequence", rows_of(r == 0 ? std::vector<std::int64_t>{0, 3} : range(1, 3), 2));
    dump.add_part(rank, "vocabulary",
                  rows_of(r == 0 ? range(0, 4) : std::vector<std::int64_t>{4, 5, -1, -1}, 2));
    dump.add_part(rank, "moment", {{3}, r == 0 ? range(0, 3) : std::vector<std::int64_t>{3, 4, -1}});
    const std::vector<std::int64_t> tokens =
        r == 0 ? std::vector<std::int64_t>{4, 0, 3} : std::vector<std::int64_t>{1, 2};
    dump.add_indices(rank, "order", tokens);
    dump.add_part(rank, "tokens", rows_of(tokens, 3));
  }
  const LayoutRules rules = layout(std::string(two_ranks) + R"(
[[layout]]
match = 'qkv'
dims = 'out[tp] in'
[[layout]]
match = 'uneven'
dims = 'out[tp] in'
[[layout]]
match = 'proj'
dims = 'out in[tp]'
[[layout]]
match = 'sum'
dims = 'h [tp:partial]'
[[layout]]
match = 'sequence'
dims = 's[tp:zigzag] h'
[[layout]]
match = 'vocabulary'
dims = 'v[tp] h'
cut = [6, 0]
[[layout]]
match = 'moment'
dims = 'h'
flat = 'tp'
shape = [5]
[[layout]]
match = 'tokens'
dims = 't[tp:rows] h'
rows = 'order'
)");
  apply_layout(dump, rules);
  expect_whole(dump, "qkv", {8, 3});
  expect_whole(dump, "uneven", {5, 2});
  expect_whole(dump, "norm", {3});
  expect_whole(dump, "proj", {2, 4});
  expect_whole(dump, "sum", {4});
  expect_whole(dump, "sequence", {4, 2});
  expect_whole(dump, "vocabulary", {6, 2});
  expect_whole(dump, "moment", {5});
  expect_whole(dump, "tokens", {5, 3});
  EXPECT_TRUE(rules.unused().empty());
}

// pp 2 of 2 virtual chunks with one layer each, dp 2 that is also ep 2, tp 2: layers 0 .. 3 are those of
// chunk 0 of stage 0 and 1, then chunk 1; experts 0 .. 3 are two of each ep rank.
TEST(LayoutRules, EightRanks) {
  Ranks dump;
  for (std::int64_t r = 0; r < 8; ++r) {
    const std::int64_t dp = r / 2 % 2, tp = r % 2;
    const auto rank = static_cast<std::size_t>(r);
    for (const int chunk : {0, 1}) {
      const std::string layer = fmt::format("chunk{}.layers.0.", chunk);
      dump.add_part(rank, layer + "qkv", rows_of(range(2 * tp, 2 * tp + 2), 3));
      for (const int expert : {0, 1}) {
        Held fc{{2, 2}, {}};
        for (std::int64_t row = 0; row < 2; ++row) {
          for (std::int64_t c = 0; c < 2; ++c) fc.elements.push_back(row * 4 + 2 * tp + c);
        }
        dump.add_part(rank, fmt::format("{}experts.{}.fc2", layer, expert), fc);
      }
      // The moments of qkv: its tp share, flat over dp.
      dump.add_part(rank, layer + "qkv.exp_avg", {{3}, range(6 * tp + 3 * dp, 6 * tp + 3 * dp + 3)});
      // A sequence in zigzag over dp, then in halves over tp.
      const std::vector<std::int64_t> cp = dp == 0 ? std::vector<std::int64_t>{0, 1, 6, 7} : range(2, 6);
      dump.add_part(
          rank, layer + "hidden",
          rows_of({cp[static_cast<std::size_t>(2 * tp)], cp[static_cast<std::size_t>(2 * tp + 1)]}, 2));
    }
  }
  const LayoutRules rules = layout(R"(
[[mesh]]
dims = ["pp", "dp", "tp"]
shape = [2, 2, 2]
rank = '^rank(\d+)/'
[[renumber]]
match = '^chunk(\d+)\.layers\.(\d+)\.'
to = 'layers.$n.'
axis = 'pp'
per = 1
[[renumber]]
match = 'experts\.(\d+)\.'
axis = 'dp'
per = 2
[[layout]]
match = '*.qkv'
dims = 'out[tp] in'
[[layout]]
match = '*.fc2'
dims = 'out in[tp]'
[[layout]]
match = '*.exp_avg'
dims = 'out[tp] in'
flat = 'dp'
shape = [4, 3]
[[layout]]
match = '*.hidden'
dims = 's[dp:zigzag,tp] h'
)");
  apply_layout(dump, rules);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = fmt::format("layers.{}.", layer);
    expect_whole(dump, name + "qkv", {4, 3});
    for (int expert = 0; expert < 4; ++expert)
      expect_whole(dump, fmt::format("{}experts.{}.fc2", name, expert), {2, 4});
    expect_whole(dump, name + "qkv.exp_avg", {4, 3});
    expect_whole(dump, name + "hidden", {8, 2});
  }
  EXPECT_EQ(logical_tensors(dump).size(), 4U * 7U);
  EXPECT_TRUE(rules.unused().empty());
}

TEST(LayoutRules, MicroBatchesAndUnevenStagesCountOn) {
  Ranks dump;
  for (const std::size_t rank : {0, 1}) {
    for (const std::int64_t micro_batch : {0, 1}) {
      dump.add_part(rank, fmt::format("layers.{}.x", rank == 0 ? 0 : 1), {{1}, {0}});
      dump.records.back().id.micro_batch = micro_batch;
    }
  }
  apply_layout(dump, layout(std::string(two_ranks) + R"(
[[renumber]]
match = '.*'
axis = 'tp'
micro_batch = true
interleaved = true
[[renumber]]
match = 'layers\.(\d+)'
axis = 'tp'
starts = [0, 3]
)"));
  std::vector<std::pair<std::string, std::int64_t>> found;
  for (const Record& r : dump.records) found.emplace_back(r.id.module, r.id.micro_batch);
  EXPECT_THAT(found, testing::ElementsAre(std::pair("layers.0.x", 0), std::pair("layers.0.x", 2),
                                          std::pair("layers.4.x", 1), std::pair("layers.4.x", 3)));
}

TEST(LayoutRules, ASingleRankIsLeftAlone) {
  MemoryDump dump("single");
  dump.add("layers.0.qkv", Tensor::from_indices({4, 3}, range(0, 12)));
  apply_layout(dump, layout(std::string(two_ranks) + "[[layout]]\nmatch='*'\ndims='out[tp] in'\n"));
  EXPECT_TRUE(dump.records[0].placements.empty());
}

void expect_error(const std::string& toml, std::string_view part,
                  const std::function<void(Ranks&)>& more = {}) {
  Ranks dump;
  dump.add_part(0, "w", {{2, 2}, {0, 1, 2, 3}});
  dump.add_part(1, "w", {{2, 2}, {4, 5, 6, 7}});
  if (more) more(dump);
  EXPECT_THAT([&] { apply_layout(dump, layout(toml)); }, testing::ThrowsMessage<Error>(HasSubstr(part)));
}

TEST(LayoutRules, ErrorsNameTheRuleAndWhatItLacks) {
  const std::string two = two_ranks;
  expect_error("[[mesh]]\ndims=['tp']\nshape=[4]\nrank='rank(\\d+)/'", "expected a [[mesh]] of 2 ranks");
  expect_error("[[mesh]]\ndims=['tp']\nshape=[4, 2]", "1 dims and 2 extents");
  expect_error("[[mesh]]\ndims=['tp', 'tp']\nshape=[4, 2]", "names 'tp' twice");
  expect_error("[[mesh]]\ndims=['tp']\nshape=[2]\nrank='rank'", "has no group");
  expect_error("[[mesh]]\ndims=['tp']\nshape=[0]", "'shape' is no list of integers >= 1");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[ep] b'", "[[layout]] 1: the mesh has no axis 'ep'");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp] b c'", "expected 3 dimensions");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp:ring] b'", "names no axis that can be read");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp b'", "does not end with ]");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='[tp]'", "has no name");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a b'\nflat='tp'", "'flat' and 'shape' together");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp:rows] b'", "expected 'rows'");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp:rows] b'\nrows='order'", "recorded no 'order'");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp:rows] b[tp:zigzag]'\nrows='order'",
               "cannot also be in zigzag or flat");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp:rows] b'\nrows='order'\nflat='tp'\nshape=[4, 2]",
               "cannot also be in zigzag or flat");
  expect_error(two + "[[layout]]\nmatch='w'\ndims='a[tp] b'\ncut=[9, 0]", "without its padding");
  expect_error(two + "[[layout]]\nmatch='v'\ndims='a[tp]'", "the share of tp=1 is missing", [](Ranks& dump) {
    dump.add_part(0, "v", {{1}, {0}});
  });
  expect_error(two + "[[renumber]]\nmatch='(\\d)'\naxis='tp'", "expected one of starts");
  expect_error(two + "[[renumber]]\nmatch='w(\\d*)'\naxis='tp'\nper=2", "expected a number");
  expect_error(two + "[[renumber]]\nmatch='(\\d)'\naxis='tp'\nper=2\nto='x'", "expected $n");
}

}  // namespace
}  // namespace assay::layout_rules_test
