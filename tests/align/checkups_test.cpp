#include "assay/align/ranks/checkups.h"

#include <gtest/gtest.h>

namespace assay::align::checkups_test {
namespace {

// Rank 0 of three asks; the others answer with these steps.
class Asked : public testing::Test {
 protected:
  Asked() {
    for (const int rank : {1, 2}) checkups.has_begun(rank);
  }
  void ask(std::int64_t step) { checkups.begin(++checkup, step); }
  void ask(std::int64_t step, std::int64_t of_1, std::int64_t of_2) {
    ask(step);
    checkups.answers(1, checkup, of_1);
    checkups.answers(2, checkup, of_2);
  }
  Checkups checkups{0, 3};
  std::int64_t checkup = 0;
};

TEST_F(Asked, AllThatWaitTwiceAtTheSameStepsAreAtAStandstill) {
  ask(3, 5, 4);
  EXPECT_FALSE(checkups.is_standstill(3));
  ask(3, 5, 4);
  EXPECT_TRUE(checkups.is_standstill(3));
  EXPECT_EQ(checkups.lost(), -1);
}

TEST_F(Asked, OneThatComputesGoesOn) {
  for (int i = 0; i < 5; ++i) {
    ask(3, 5, Checkups::goes_on);
    EXPECT_FALSE(checkups.is_standstill(3));
  }
  EXPECT_EQ(checkups.lost(), -1);
}

TEST_F(Asked, OneThatWaitsAnewHasGoneOn) {
  ask(3, 5, 4);
  ask(3, 5, 6);
  EXPECT_FALSE(checkups.is_standstill(3));
  ask(3, 5, 6);
  EXPECT_TRUE(checkups.is_standstill(3));
  EXPECT_FALSE(checkups.is_standstill(4)) << "a tensor has come since";
  EXPECT_FALSE(checkups.is_standstill(Checkups::goes_on));
}

TEST_F(Asked, OneThatEndsHasGoneOnForTheLastTime) {
  ask(3, 5, 4);
  checkups.has_ended(2);
  ask(3, 5, 4);
  EXPECT_FALSE(checkups.is_standstill(3));
  ask(3, 5, Checkups::goes_on);
  EXPECT_TRUE(checkups.is_standstill(3));
}

TEST_F(Asked, AllHaveToAnswerTheQuestionOfNow) {
  ask(3, 5, 4);
  ask(3);
  checkups.answers(1, checkup, 5);
  EXPECT_FALSE(checkups.is_standstill(3));
  checkups.answers(2, checkup - 1, 4);
  EXPECT_FALSE(checkups.is_standstill(3));
  checkups.answers(2, checkup, 4);
  EXPECT_TRUE(checkups.is_standstill(3));
}

TEST_F(Asked, WhoDoesNotAnswerTwiceIsLost) {
  for (int i = 0; i < 2; ++i) {
    ask(3);
    checkups.answers(1, checkup, 5);
    EXPECT_TRUE(checkups.owes_an_answer(2));
    EXPECT_EQ(checkups.lost(), -1);
  }
  ask(3);
  EXPECT_EQ(checkups.lost(), 2);
}

TEST_F(Asked, ALateAnswerIsASignOfLife) {
  for (int i = 0; i < 5; ++i) {
    ask(3);
    for (const int rank : {1, 2}) checkups.answers(rank, checkup - 1, 5);
    EXPECT_EQ(checkups.lost(), -1);
    EXPECT_FALSE(checkups.is_standstill(3));
  }
}

TEST_F(Asked, WhoHasEndedStillAnswers) {
  checkups.has_ended(1);
  for (int i = 0; i < 3; ++i) {
    ask(3);
    checkups.answers(2, checkup, Checkups::goes_on);
  }
  EXPECT_EQ(checkups.lost(), 1);
}

TEST(Checkups, WhoHasNotBegunMayTakeLonger) {
  Checkups of_two(0, 2);
  for (std::int64_t checkup = 1; checkup <= 10; ++checkup) {
    of_two.begin(checkup, 1);
    EXPECT_EQ(of_two.lost(), -1);
  }
  of_two.begin(11, 1);
  EXPECT_EQ(of_two.lost(), 1);
}

}  // namespace
}  // namespace assay::align::checkups_test
