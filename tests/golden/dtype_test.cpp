#include "assay/golden/dtype.h"

#include <gtest/gtest.h>

namespace assay::dtype_test {
namespace {

TEST(DType, NamesReadBack) {
  for (const DType d : all_dtypes) EXPECT_EQ(parse_dtype(name(d)), d) << name(d);
  EXPECT_EQ(parse_dtype("torch.bfloat16"), DType::bfloat16);
  EXPECT_EQ(parse_dtype("F8_E4M3"), DType::float8_e4m3fn);
  EXPECT_EQ(parse_dtype("fp8"), std::nullopt);
}

}  // namespace
}  // namespace assay::dtype_test
