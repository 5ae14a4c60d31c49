// State spaces, sparse attention, and experts without a gate: calls that are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "calls.h"

namespace assay::scan_test {
namespace {

class WrongScan : public testing::TestWithParam<Wrong> {};

TEST_P(WrongScan, IsAnErrorThatSaysSo) {
  Wrong call = GetParam();  // beside or instead of good inputs
  using Inputs = std::vector<NamedTensor>;
  const Inputs params = {zeros("A_log", {2}), zeros("D", {2}), zeros("dt_bias", {2})};
  std::map<std::string, Inputs> by_op = {
      {"mamba2_scan", {zeros("xBC", {1, 10, 4}), zeros("zxbcdt", {1, 3, 18})}},
      {"selective_scan",
       {zeros("x", {1, 3, 4}), zeros("dt", {1, 4, 3}), zeros("A_log", {3, 2}), zeros("D", {3})}},
      {"lightning_indexer", {zeros("q", {1, 5, 8}), zeros("k", {1, 5, 4}), zeros("head_weights", {1, 5, 2})}},
      {"moe_experts", {zeros("x", {4, 3}), zeros("gate_up", {2, 5, 3}), zeros("down", {2, 3, 5})}}};
  by_op["mamba2_scan"].insert(by_op["mamba2_scan"].end(), params.begin(), params.end());
  for (const NamedTensor& input : by_op.at(call.op)) {
    if (std::ranges::find(call.inputs, input.name, &NamedTensor::name) == call.inputs.end())
      call.inputs.push_back(input);
  }
  expect_error(call);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongScan,
    testing::Values(
        Wrong{"mamba2_scan", {}, "n_groups=3", "3 groups for 2 heads"},
        Wrong{"mamba2_scan", {}, "head_dim=6", "xBC has 10 channels for 2 heads of 6 and 1 groups"},
        Wrong{"mamba2_scan", {}, "head_dim=0", "heads of 0 channels"},
        Wrong{"mamba2_scan", {zeros("zxbcdt", {1, 3, 2})}, "", "z, x, B, C and dt in zxbcdt, or head_dim"},
        Wrong{"mamba2_scan", {zeros("zxbcdt", {1, 3, 2})}, "head_dim=3,gated=true", "zxbcdt has 2 channels"},
        Wrong{"mamba2_scan", {zeros("xBC", {1, 10, 2})}, "", "xBC has 2 tokens and zxbcdt 3"},
        Wrong{"mamba2_scan", {}, "activation=\"gelu\"", "activation is \"gelu\"; expected none or silu"},
        Wrong{"selective_scan", {zeros("B", {1, 4, 2})}, "", "expected B and C, or BC"},
        Wrong{"selective_scan", {zeros("BC", {1, 4, 3})}, "", "BC has 3 columns for a state of 2"},
        Wrong{
            "selective_scan", {zeros("x", {1, 3, 2}), zeros("BC", {1, 4, 4})}, "", "x has 2 tokens and dt 4"},
        Wrong{"lightning_indexer", {}, "", "attribute 'top_k' is missing"},
        Wrong{"lightning_indexer", {}, "top_k=6", "top_k is 6 of 5 keys"},
        Wrong{"lightning_indexer", {zeros("k", {1, 5, 3})}, "top_k=2", "q has 8 channels for 2 heads of 3"},
        Wrong{"lightning_indexer", {}, "top_k=2,style=\"by_pair\"", "style is \"by_pair\""},
        Wrong{"lightning_indexer",
              {indices("chosen", {1, 5, 2}, std::vector<std::int64_t>(10, 1))},
              "top_k=2",
              "'chosen' gives query 0 the key 1 twice"},
        Wrong{"moe_experts", {}, "", "expected [E, 2I, C] and [E, C, I]"},
        Wrong{"moe_experts",
              {},
              "gated=false,activation=\"swigluoai\"",
              "expected silu, gelu, gelu_tanh, relu, relu_squared, or with a gate swigluoai"}));

}  // namespace
}  // namespace assay::scan_test
