#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/golden/error.h"
#include "assay/operators/engine/generate.h"

namespace assay::geglu_test {
namespace {

Tensor geglu(const std::vector<NamedTensor>& inputs, std::string_view attributes) {
  return compute_golden(find_operator("geglu"), inputs, parse_call({"", attributes}).attributes,
                        Level::fp64)[0]
      .tensor;
}

// Either half may be the gate, and a wrong choice looks plausible: it must be said.
TEST(GeGlu, AsksWhichHalfIsTheGate) {
  const std::vector<NamedTensor> x = {
      {"x", Tensor::from_values(DType::float64, {1, 2}, std::vector<double>{40, 3})}};
  EXPECT_EQ(geglu(x, "activate_left=true").value(0), 120);
  EXPECT_LT(geglu(x, "activate_left=false").value(0), 120);
  for (const char* wrong : {"", "activate_left=true,approximate=\"fast\""}) {
    EXPECT_THROW(geglu(x, wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace assay::geglu_test
