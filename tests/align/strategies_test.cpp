// Every parallel strategy against the single device (facts E).
#include "single_device.h"

namespace assay::align {
namespace {

class Strategy : public testing::TestWithParam<const char*> {};

TEST_P(Strategy, GivesTheStepOfASingleDevice) {
  const Model model = load_model("telechat3-105b-tiny");
  const StepSettings settings = {.batch = {2, 16}, .micro_batches = 8};
  static const Result single = run(model, settings, "");
  expect_single_device(run(model, settings, GetParam()), single);
}

INSTANTIATE_TEST_SUITE_P(
    Facts, Strategy,
    testing::Values("dp=2", "dp=4,zero=1", "dp=2,zero=2", "dp=2,zero=3", "tp=2", "tp=2,sp=1", "tp=4,sp=1",
                    "cp=2,context=ulysses", "cp=2", "cp=4", "pp=2", "pp=4", "pp=2,vpp=2,schedule=interleaved",
                    "pp=2,schedule=zero-bubble", "pp=2,schedule=dualpipe", "pp=4,schedule=dualpipe",
                    "dp=2,ep=2", "dp=2,ep=2,dispatch=allgather", "dp=4,ep=4,dispatch=hierarchical,node=2",
                    "dp=4,ep=2", "tp=2,ep=2", "tp=2,sp=1,ep=2", "tp=2,etp=2", "dp=2,etp=2", "cp=2,ep=2",
                    "dp=4,etp=2,ep=2,dispatch=allgather", "tp=2,pp=2,dp=2,ep=4",
                    "tp=2,sp=1,pp=2,vpp=2,schedule=interleaved,ep=2", "dp=2,cp=2,zero=3"),
    [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace assay::align
