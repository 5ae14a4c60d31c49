#include "assay/compare/calls/row_check.h"

#include <cmath>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/generate.h"
#include "check_case.h"
#include "metrics_bits.h"

namespace assay::row_check_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// A large call, and what a plain correct kernel makes of it.
MadeCall large_call(std::string_view op, const CallShape& shape, DType dtype = DType::float32) {
  MadeCall call{&find_operator(op), {}, {}, shape.attributes};
  call.inputs = generate_inputs(*call.op, shape, Fill::random, dtype, 5);
  for (const NamedTensor& t : compute_golden(*call.op, call.inputs, call.attributes, Level::report))
    call.outputs.push_back({t.name, Tensor::from_values(dtype, t.tensor.shape(), t.tensor.values())});
  return call;
}

CallShape wide_rows(std::string_view op) {
  const std::string name(op);
  if (name == "softmax" || name == "log_softmax") return parse_call({"A=601,C=509,B="});
  if (name == "silu" || name == "gelu" || name == "sigmoid") return parse_call({"N=601x509"});
  if (name == "swiglu") return parse_call({"N=601,W=1018", "", "gate,up"});
  return parse_call({"N=601,C=509"});
}

class LargeCall : public testing::TestWithParam<const char*> {};

TEST_P(LargeCall, PassesByAPartOfItsBoundWithAnyNumberOfThreads) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const MadeCall call = large_call(GetParam(), wide_rows(GetParam()), dtype);
    std::vector<Report> reports;
    for (const int threads : {1, 3}) {
      const ThreadScope scope(threads);
      reports.push_back(check(call, check_options()));
    }
    CheckOptions small = check_options({"derived", "derived"});  // of two policies the whole is needed
    const Report whole = check(call, small);
    ASSERT_EQ(reports[0].findings.size(), call.outputs.size());
    for (std::size_t k = 0; k < call.outputs.size(); ++k) {
      const Finding &f = reports[0].findings[k], &w = whole.findings[k];
      EXPECT_EQ(f.verdict, Verdict::passed) << f.name << " " << f.reason;
      // In bfloat16 the whole may need more than the roundings that elements share (shared_scale_error).
      if (dtype == DType::float32) {
        EXPECT_THAT(f.rule, HasSubstr("a part of the error bound")) << f.name;
      }
      EXPECT_THAT(w.rule, Not(HasSubstr("a part of"))) << f.name;
      EXPECT_EQ(named_fields(*f.metrics), named_fields(*reports[1].findings[k].metrics)) << f.name;
      EXPECT_GE(f.ratio, w.ratio) << f.name;
      EXPECT_EQ(f.metrics->elements, w.metrics->elements);
      EXPECT_NEAR(f.metrics->max_abs, w.metrics->max_abs, 1e-12 * std::abs(w.metrics->reference.max))
          << f.name;
      EXPECT_EQ(f.metrics->max_abs_at, w.metrics->max_abs_at) << f.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowCheck, LargeCall,
                         testing::Values("softmax", "log_softmax", "rms_norm", "layer_norm", "silu", "gelu",
                                         "sigmoid", "swiglu"));

// Up to the whole bound, no further.
TEST(RowCheck, NothingIsLostOfTheBound) {
  MadeCall call = large_call("softmax", wide_rows("softmax"));
  const std::string output = call.outputs[1].name;
  ASSERT_EQ(output, "grad_x");
  const Tensor golden = output_named(compute_golden(*call.op, call.inputs, {}, Level::fp64), output),
               bound = output_named(compute_bound(*call.op, call.inputs, {}, float32_device), output);
  constexpr std::int64_t at = 509 * 250 + 17;
  for (const double share : {0.5, 0.8, 0.95, 1.05, 1.3}) {
    std::vector<double> values = call.outputs[1].tensor.whole().values();
    values[at] = static_cast<float>(golden.value(at) + share * bound.value(at));
    const bool within = std::abs(values[at] - golden.value(at)) <= bound.value(at);
    call.outputs[1].tensor = Tensor::from_values(DType::float32, golden.shape(), values);
    CheckOptions options = check_options();
    options.causes = false;
    const Report report = check(call, options);
    EXPECT_EQ(report.findings[0].verdict, Verdict::passed);
    EXPECT_EQ(report.findings[1].verdict, within ? Verdict::passed : Verdict::failed) << share;
    if (!within) {
      EXPECT_THAT(report.findings[1].rule, Not(HasSubstr("a part of")));
    }
  }
}

TEST(RowCheck, ACommonFactorIsSeenAsBefore) {
  MadeCall call = large_call("silu", wide_rows("silu"));
  std::vector<double> values = call.outputs[0].tensor.whole().values();
  for (double& v : values) v *= 1 + 0x1p-21;
  call.outputs[0].tensor = Tensor::from_values(DType::float32, call.outputs[0].tensor.shape(), values);
  CheckOptions options = check_options();
  options.whole = true;
  options.causes = false;
  EXPECT_EQ(check(call, options).findings[0].verdict, Verdict::failed);
}

TEST(RowCheck, OneNaNIsFound) {
  MadeCall call = large_call("layer_norm", wide_rows("layer_norm"));
  std::vector<double> values = call.outputs[0].tensor.whole().values();
  values[123456] = std::nan("");
  call.outputs[0].tensor = Tensor::from_values(DType::float32, call.outputs[0].tensor.shape(), values);
  CheckOptions options = check_options();
  options.causes = false;
  const Finding f = check(call, options).findings[0];
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_EQ(f.metrics->special_mismatch_at, 123456);
}

}  // namespace
}  // namespace assay::row_check_test
