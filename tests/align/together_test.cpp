// Several faults in one replay.
#include "assay/align/faults/together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/golden/error.h"

namespace assay::align::together_test {
namespace {

TEST(Together, AListOfFaultsIsTakenApart) {
  const auto faults = faults_named("F001,F131");
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0]->id, "F001");
  EXPECT_EQ(faults[1]->id, "F131");
  EXPECT_THROW(faults_named("F001,F999"), Error);
  EXPECT_THROW(faults_named("F001,"), Error);
}

}  // namespace
}  // namespace assay::align::together_test
