// What a recorder could not place, placed by the other side of a comparison.
#include "assay/dumps/layout/layout_rules.h"
#include "merged_dump.h"

namespace assay::placing_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Recorded by two ranks that hold different values.
struct TwoRanks : Fake {
  TwoRanks(const Shape& shape, std::vector<double> first, std::vector<double> second)
      : Fake({{"dp", "tp"}, {1, 2}}) {
    add(0, {replicate, replicate}, shape, shape, std::move(first));
    add(1, {replicate, replicate}, shape, shape, std::move(second));
    for (Record& r : records) r.unplaced = {1};
  }
};

struct Whole : Fake {
  Whole(const Shape& shape, std::vector<double> values) : Fake({{"dp", "tp"}, {1, 1}}) {
    add(0, {replicate, replicate}, shape, shape, std::move(values));
  }
};

TEST(Placing, PartsAreShardsOfTheLongerDimension) {
  TwoRanks parts({2, 2}, {1, 2, 5, 6}, {3, 4, 7, 8});
  Whole reference({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  apply_layouts(parts, reference, {});
  EXPECT_THAT(parts.left_out, IsEmpty());
  const Merged merged = parts.merged();
  EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(merged.replicas, IsEmpty());
}

// Gate and up, each cut over the ranks; roundings do not hide it.
TEST(Placing, PartsMayBeAPieceOfEachHalf) {
  TwoRanks parts({2, 2}, {1.01, 2, 5, 6}, {3, 4.01, 7, 8});
  Whole reference({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  apply_layouts(parts, reference, {});
  EXPECT_THAT(parts.left_out, IsEmpty());
  EXPECT_THAT(parts.merged().tensor.whole().values(),
              testing::Pointwise(testing::FloatEq(), {1.01F, 2.F, 3.F, 4.01F, 5.F, 6.F, 7.F, 8.F}));
}

// A sequence over cp, which nobody placed, whose parts are cut over an axis before or behind it.
TEST(Placing, APartThatIsCutItselfIsPlacedAsAWhole) {
  const Placement cut{.kind = Placement::Kind::shard, .dim = 0};
  for (const bool is_outer : {true, false}) {
    Fake parts(
        {is_outer ? std::vector<std::string>{"tp", "cp"} : std::vector<std::string>{"cp", "tp"}, {2, 2}});
    for (int rank = 0; rank < 4; ++rank) {
      const int cp = is_outer ? rank % 2 : rank / 2, tp = is_outer ? rank / 2 : rank % 2;
      const double first = 4 * cp + 2 * tp;
      parts.add(rank, {is_outer ? cut : replicate, is_outer ? replicate : cut}, {4}, {2}, {first, first + 1});
      parts.records.back().unplaced = {is_outer ? 1 : 0};
    }
    Whole reference({8}, {0, 1, 2, 3, 4, 5, 6, 7});
    apply_layouts(parts, reference, {});
    EXPECT_THAT(parts.left_out, IsEmpty());
    EXPECT_THAT(parts.merged().tensor.whole().values(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << is_outer;
  }
}

TEST(Placing, PartsAsLargeAsTheWholeAreCopiesThatDiffer) {
  TwoRanks parts({2}, {1, 2}, {3, 4});
  Whole reference({2}, {4, 6});
  apply_layouts(parts, reference, {});
  EXPECT_EQ(parts.merged().replicas.size(), 1U);
}

TEST(Placing, EachRanksOwnLossIsAnAddend) {
  TwoRanks parts({}, {1}, {3});
  Whole reference({}, {4});
  for (Fake* dump : std::initializer_list<Fake*>{&parts, &reference})
    for (Record& r : dump->records) r.id = {0, 0, Phase::forward, "loss", "loss", "lm", 0};
  apply_layouts(parts, reference, {});
  const Merged merged = parts.merged();
  EXPECT_THAT(merged.tensor.whole().values(), ElementsAre(4));
  EXPECT_THAT(merged.replicas, IsEmpty());
}

TEST(Placing, AGradientOfOneNumberThatRanksDoNotShareDiffers) {
  TwoRanks parts({}, {1}, {3});
  Whole reference({}, {4});
  apply_layouts(parts, reference, {});
  EXPECT_EQ(parts.merged().replicas.size(), 1U);
}

TEST(Placing, PartsOfOtherLengthsLieInTheOrderOfRanks) {
  Fake parts({{"dp", "tp"}, {1, 2}});
  parts.add(0, {replicate, replicate}, {1, 2}, {1, 2}, {1, 2});
  parts.add(1, {replicate, replicate}, {2, 2}, {2, 2}, {3, 4, 5, 6});
  for (Record& r : parts.records) r.unplaced = {1};
  Whole reference({3, 2}, {1, 2, 3, 4, 5, 6});
  apply_layouts(parts, reference, {});
  EXPECT_THAT(parts.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4, 5, 6));
}

// Of two ranks: what experts make, and what the module around them gives back, which is equal on both.
struct Experts : Fake {
  Experts(const std::vector<double>& first, const std::vector<double>& second, bool is_united)
      : Fake({{"dp", "tp"}, {1, 2}}) {
    for (const int rank : {0, 1}) {
      add(rank, {replicate, replicate}, {2}, {2}, rank == 0 ? first : second);
      records.back().id = {0, 0, Phase::forward, "moe.experts", "output", "y", 0};
      records.back().unplaced = {1};
      add(rank, {replicate, replicate}, {2}, {2}, {4, 6});
      records.back().id = {0, 0, Phase::forward, "moe", "output", "y", 0};
      if (!is_united) records.back().unplaced = {1};
    }
  }
};

TEST(Placing, WhatAModuleAddsUpAreAddends) {
  Whole reference({2}, {4, 6});
  reference.records[0].id = {0, 0, Phase::forward, "moe.experts", "output", "y", 0};
  const auto placed = [&](std::vector<double> second, bool is_united) {
    Experts parts({1, 2}, second, is_united);
    apply_layouts(parts, reference, {});
    return parts.records[0];
  };
  EXPECT_EQ(placed({3, 4}, true).placements[1].kind, Placement::Kind::partial);
  EXPECT_EQ(placed({-9, -9}, true).unplaced, std::vector<int>{1}) << "each rank's own";
  const Record differing = placed({3, 4}, false);
  EXPECT_EQ(differing.placements[1].kind, Placement::Kind::replicate) << "the all-reduce is missing";
  EXPECT_THAT(differing.unplaced, IsEmpty());
}

TEST(Placing, WhatFitsNoDimensionIsLeftOutAndSaid) {
  for (const Shape& shape : {Shape{3, 2}, {4, 4}, {4}}) {
    TwoRanks parts({2, 2}, {1, 2, 5, 6}, {3, 4, 7, 8});
    Whole reference(shape, std::vector<double>(static_cast<std::size_t>(element_count(shape))));
    apply_layouts(parts, reference, {});
    const auto why = why_unplaced(parts);
    ASSERT_THAT(why, testing::SizeIs(1)) << to_string(shape);
    EXPECT_THAT(
        why.begin()->second,
        HasSubstr("hold different parts of it, and nothing says which; say it with a [[layout]] rule"));
    EXPECT_THAT(logical_tensors(parts), IsEmpty());
  }
}

TEST(Placing, WhatTheOtherSideLacksIsSaidOnce) {
  TwoRanks parts({2}, {1, 2}, {3, 4});
  Fake reference({{"dp", "tp"}, {1, 1}});
  apply_layouts(parts, reference, {});
  EXPECT_THAT(parts.left_out,
              ElementsAre(HasSubstr("ranks over tp hold different parts of it, and nothing says which")));
}

TEST(Placing, PartsOfBothSidesAreComparedRankByRank) {
  TwoRanks a({2}, {1, 2}, {3, 4}), b({2}, {1, 2}, {3, 4});
  apply_layouts(a, b, {});
  EXPECT_THAT(a.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(b.merged().tensor.whole().values(), ElementsAre(1, 2, 3, 4));
}

TEST(Placing, ALayoutRuleComesFirst) {
  TwoRanks parts({2, 2}, {1, 2, 5, 6}, {3, 4, 7, 8});
  LayoutRules rules;
  LayoutRules::Layout rule;
  rule.match = "layer.*";
  rule.dims = parse_dims("rows[tp] columns");
  rules.layouts.push_back(rule);
  Whole reference({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  apply_layouts(parts, reference, rules);
  EXPECT_EQ(parts.merged().tensor.shape(), (Shape{4, 2}));
}

TEST(Placing, ADumpAloneSaysWhatIsUnplaced) {
  TwoRanks parts({2}, {1, 2}, {3, 4});
  apply_layout(parts, {});
  EXPECT_THAT(parts.left_out, ElementsAre(HasSubstr("layer grad weight")));
}

}  // namespace
}  // namespace assay::placing_test
