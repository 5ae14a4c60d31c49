#include "assay/align/strategies/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/align/strategies/redistribution.h"

namespace assay::align::packing_test {
namespace {

using testing::ElementsAre;

TEST(Packing, RanksGetAsMuchAsCanBeAndAsMany) {
  EXPECT_THAT(packed(std::vector<std::int64_t>{9, 1, 4, 4}, 2),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(packed(std::vector<std::int64_t>{9, 8, 1, 2, 7, 3}, 3),  // 10 each
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 5)));
  EXPECT_THAT(packed(std::vector<std::int64_t>{9, 0, 0, 0}, 2),  // room comes before load
              ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  EXPECT_THAT(packed(std::vector<std::int64_t>{1, 1, 1, 1}, 2),  // ties in turn
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

// Two sequences of four tokens of each rank; the number of a token says which, rank * 10 + sequence.
Sequences sequences(std::int64_t rank, const std::vector<std::int64_t>& lengths) {
  Sequences result;
  for (std::int64_t l = 0; l < 4; ++l) {
    for (std::int64_t s = 0; s < 2; ++s) {
      result.tokens.push_back(10 * rank + s);
      result.targets.push_back(l + 1 == lengths[static_cast<std::size_t>(s)] ? 10 * rank + s : no_target);
    }
  }
  return result;
}

// 16 and 1 beside 9 and 9: by the lengths alone they could stay.
TEST(Redistribution, LongSamplesAreSpreadByTheWorkOfAttention) {
  const std::vector<Sequences> given = {sequences(0, {4, 3}), sequences(1, {3, 1})};
  const std::vector<Sequences> dealt = redistributed(given, {2, 4});
  EXPECT_THAT(dealt[0].tokens, ElementsAre(0, 11, 0, 11, 0, 11, 0, 11));
  EXPECT_THAT(dealt[1].tokens, ElementsAre(1, 10, 1, 10, 1, 10, 1, 10));
  EXPECT_EQ(dealt[0].targets[6], 0);   // at the end of the long one
  EXPECT_EQ(dealt[0].targets[1], 11);  // of the short one at its beginning
}

TEST(Redistribution, SamplesWithoutTargetsAreNoWork) {
  const std::vector<Sequences> given = {sequences(0, {4, 4}), sequences(1, {0, 0})};
  const std::vector<Sequences> dealt = redistributed(given, {2, 4});
  EXPECT_THAT(dealt[0].tokens, ElementsAre(0, 10, 0, 10, 0, 10, 0, 10));
  EXPECT_THAT(dealt[1].tokens, ElementsAre(1, 11, 1, 11, 1, 11, 1, 11));
}

}  // namespace
}  // namespace assay::align::packing_test
