#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "calls.h"

// Routing and what moves tokens: how the operators of one MoE layer belong together, and calls that are
// wrong.
namespace assay::moe_test {
namespace {

using testing::ElementsAre;

struct Outputs {
  std::vector<NamedTensor> all;
  const Tensor& operator[](std::string_view name) const {
    return std::ranges::find(all, name, &NamedTensor::name)->tensor;
  }
};

Outputs golden(std::string_view op, const std::vector<NamedTensor>& inputs, std::string_view attributes) {
  return {compute_golden(find_operator(op), inputs, parse_call({"", attributes}).attributes, Level::fp64)};
}

TEST(Router, OfEqualScoresTakesTheLowerExpert) {
  const Outputs routed = golden(
      "router_topk", {zeros("logits", {1, 5}), values("expert_bias", {5}, {0, 0, 1, 0, 1})}, "top_k=3");
  EXPECT_THAT(routed["index"].indices(), ElementsAre(2, 4, 0));
  EXPECT_THAT(routed["selection_gap"].values(), ElementsAre(0));
}

TEST(Router, KeepsTheOrderOfManyEqualScores) {
  const Outputs routed = golden("router_topk", {zeros("logits", {1, 40})}, "top_k=3");
  EXPECT_THAT(routed["index"].indices(), ElementsAre(0, 1, 2));
}

// The last of the given experts, 1, is behind 2, which could have been chosen.
TEST(Router, TakesTheGivenChoiceAndSaysHowFarItIsBehind) {
  const Outputs routed =
      golden("router_topk", {values("logits", {1, 4}, {0, 1, 2, 4}), indices("chosen", {1, 2}, {1, 3})},
             "top_k=2,pre_softmax=false");
  EXPECT_THAT(routed["index"].indices(), ElementsAre(1, 3));
  EXPECT_EQ(routed["selection_gap"].value(0), -1);
}

// Expert 0 is the best, but its group is not: 2 + 0 against 1.5 + 1.
TEST(Router, AGivenChoiceOutsideOfTheKeptGroupsIsBehind) {
  const NamedTensor scores = values("logits", {1, 4}, {2, 0, 1.5, 1});
  const auto gap_of = [&](std::int64_t expert) {
    return golden("router_topk", {scores, indices("chosen", {1, 1}, {expert})},
                  "top_k=1,pre_softmax=false,groups=[2,1],group_top=2")["selection_gap"]
        .value(0);
  };
  EXPECT_EQ(gap_of(0), -0.5);
  EXPECT_EQ(gap_of(2), 0.5);
  EXPECT_EQ(gap_of(3), -0.5) << "in the group, but 2 is better";
}

// Of 4 and 3.5, an eighth behind, either may be drawn; of the second choice 3.5 alone is left.
TEST(Router, ADrawHasAThirdOfItsWeightOrAllOfIt) {
  const auto routed = [](const std::string& more) {
    return golden("router_topk", {values("logits", {1, 3}, {3.5, 4, 1}), indices("chosen", {1, 2}, {0, 1})},
                  "top_k=2,score=\"sparsemixer\",jitter=0.125,drawn=true" + more);
  };
  const Outputs whole = routed(""), third = routed(",forwarded=0.3333");
  const double share = 1 / (1 + std::exp(0.5));
  EXPECT_DOUBLE_EQ(whole["weights"].value(0), share);
  EXPECT_DOUBLE_EQ(third["weights"].value(0), 0.3333 * share);
  EXPECT_EQ(whole["weights"].value(1), 1);
  EXPECT_EQ(third["weights"].value(1), 1);
  EXPECT_DOUBLE_EQ(whole["selection_gap"].value(0), 0.25 - 0.5 / 4);
}

// It is chosen first, as in torch.topk, and no gap pretends that the choice means something.
TEST(Router, ChoosesNaNAndSaysSo) {
  const Outputs routed = golden("router_topk", {values("logits", {2, 3}, {1, std::nan(""), 2, 1, 2, 3})},
                                "top_k=1,score=\"sigmoid\",normalize=false");
  EXPECT_THAT(routed["index"].indices(), ElementsAre(1, 2));
  EXPECT_TRUE(std::isnan(routed["weights"].value(0)));
  EXPECT_TRUE(std::isnan(routed["selection_gap"].value(0)));
  EXPECT_GT(routed["selection_gap"].value(1), 0);
}

// All scores underflow in float32: no 0 / 0.
TEST(Router, WeightsAreNumbersWhereEveryScoreUnderflows) {
  const Attributes attributes = parse_call({"", "top_k=2,score=\"sigmoid\""}).attributes;
  const auto outputs =
      compute_golden(find_operator("router_topk"), std::vector{values("logits", {1, 3}, {-200, -200, -200})},
                     attributes, Level::report);
  for (const double weight : outputs[0].tensor.values()) EXPECT_EQ(weight, 0);
}

const std::vector<std::int64_t> choices = {3, 0, 1, 3, 2, -1, 0, 2, 3, 1, 0, 3};

TEST(Dispatch, ByExpertIsThePermutationOfAllTokens) {
  std::vector<double> x(18);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const Outputs sent = golden(
      "moe_dispatch", {values("x", {2, 3, 3}, x), indices("index", {2, 3, 2}, choices)}, "num_experts=4");
  const Outputs permuted =
      golden("moe_permute", {values("x", {6, 3}, x), indices("index", {6, 2}, choices)}, "num_experts=4");
  EXPECT_EQ(sent["received"].values(), permuted["permuted"].values());
  EXPECT_EQ(sent["source"].indices(), permuted["sorted_index"].indices());
  EXPECT_EQ(sent["tokens_per_expert"].indices(), permuted["tokens_per_expert"].indices());
  EXPECT_THAT(sent["send_counts"].indices(), ElementsAre(2, 3, 3, 3));
  EXPECT_THAT(sent["receive_counts"].indices(), ElementsAre(2, 3, 3, 3));
}

TEST(Combine, BringsBackWhatWasDispatched) {
  std::vector<double> x(12);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i) - 5;
  for (const std::string_view order : {"num_experts=4,order=\"expert\"", "num_experts=4,order=\"rank\""}) {
    const NamedTensor index = indices("index", {2, 3, 2}, choices),
                      placement = indices("placement", {4}, {1, 0, 0, 1});
    const Outputs sent = golden("moe_dispatch", {values("x", {2, 3, 2}, x), index, placement}, order);
    const Outputs back = golden("moe_combine", {{"expert_out", sent["received"]}, index, placement}, order);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double copies = i / 2 == 2 ? 1 : 2;  // token 2 has one choice dropped
      EXPECT_EQ(back["y"].value(static_cast<std::int64_t>(i)), copies * x[i]) << order << " at " << i;
    }
    EXPECT_EQ(back["send_counts"].indices(), sent["receive_counts"].indices());
  }
}

// The dropped token may hold anything.
TEST(Permute, DroppedTokensGoNowhere) {
  const Outputs permuted = golden("moe_permute",
                                  {values("x", {2, 1}, {std::nan(""), 7}), indices("index", {2, 1}, {-1, 0}),
                                   values("grad_permuted", {2, 1}, {3, std::nan("")})},
                                  "num_experts=2");
  EXPECT_THAT(permuted["permuted"].values(), ElementsAre(7, 0));
  EXPECT_THAT(permuted["sorted_index"].indices(), ElementsAre(1, -1));
  EXPECT_THAT(permuted["grad_x"].values(), ElementsAre(0, 3));
}

// Megatron-LM's convention: each rank divides by the tokens of all, and their losses add up.
TEST(AuxLoss, OfTheRanksAddsUpToThatOfAllTokens) {
  const std::vector<double> z = {1, -2, 0.5, 3, 0, -1, 2, 2.5, -0.5, 1, 1.5, 0};
  const Outputs whole = golden("moe_aux_loss", {values("logits", {4, 3}, z)}, "top_k=1");
  double total = 0;
  for (const int rank : {0, 1}) {
    const std::vector<double> own(z.begin() + rank * 6, z.begin() + rank * 6 + 6);
    total += golden("moe_aux_loss",
                    {values("logits", {2, 3}, own), {"group_tokens_per_expert", whole["tokens_per_expert"]}},
                    "top_k=1,group_size=2")["loss"]
                 .value(0);
  }
  EXPECT_NEAR(total, whole["loss"].value(0), 1e-15);
}

// arXiv:2412.19437: perfectly balanced tokens cost the coefficient, whatever E and K.
TEST(AuxLoss, OfABalancedRouterIsTheCoefficient) {
  for (const std::string_view kind : {"micro_batch", "sequence"}) {
    const Outputs loss = golden(
        "moe_aux_loss",
        {zeros("logits", {3, 2, 4}), indices("index", {3, 2, 4}, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,
                                                                  0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3})},
        fmt::format("top_k=4,coefficient=0.125,kind=\"{}\"", kind));
    EXPECT_EQ(loss["loss"].value(0), 0.125) << kind;
  }
}

class WrongMoe : public testing::TestWithParam<Wrong> {};

TEST_P(WrongMoe, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor logits = zeros("logits", {3, 6}), x = zeros("x", {3, 2}),
                  index2 = indices("index", {3, 2}, {0, 1, 2, 0, 1, 2}),
                  index3 = indices("index", {3, 1, 2}, {0, 1, 2, 0, 1, 2}), ranks = zeros("x", {3, 1, 2});

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongMoe,
    testing::Values(
        Wrong{"router_topk", {logits}, "", "attribute 'top_k' is missing"},
        Wrong{"router_topk", {zeros("logits", {})}, "top_k=1", "'logits' has shape []; expected [N*,E]"},
        Wrong{"router_topk", {logits}, "top_k=7", "top_k is 7 of 6 experts"},
        Wrong{"router_topk",
              {logits, indices("chosen", {3, 2}, {0, 1, 3, 3, 4, 5})},
              "top_k=2",
              "'chosen' gives token 1 the expert 3 twice"},
        Wrong{"router_topk", {logits}, "top_k=0", "top_k is 0 of 6 experts"},
        Wrong{"router_topk",
              {logits},
              "top_k=1,score=\"relu\"",
              "score is \"relu\"; expected softmax, sigmoid, sparsemixer or given"},
        Wrong{"router_topk", {logits}, "top_k=6,score=\"given\"", "weights of all 6 scores; expected fewer"},
        Wrong{"router_topk", {logits}, "top_k=1,selection_bias=true", "'expert_bias' is missing"},
        Wrong{"router_topk", {logits}, "top_k=1,groups=[4,1]", "n a divisor of the 6 experts"},
        Wrong{"router_topk", {logits}, "top_k=1,groups=[3]", "groups must be [n, kept]"},
        Wrong{"router_topk", {logits}, "top_k=3,groups=[3,1]", "1 of 3 groups of 2 are kept"},
        Wrong{"router_topk", {logits}, "top_k=1,groups=[3,2]", "the sum of 0 of its 2 experts"},
        Wrong{"router_topk", {logits}, "top_k=2,groups=[3,2],group_top=3", "the sum of 3 of its 2 experts"},
        Wrong{"expert_bias_update",
              {zeros("expert_bias", {2, 2}), zeros("tokens_per_expert", {4})},
              "",
              "has shape [2, 2]; expected [E]"},
        Wrong{"moe_capacity_drop",
              {zeros("probs", {3, 2}), indices("routing_map", {3, 2}, {0, 1, 1, 0, 0, 1})},
              "",
              "'top_k' is missing"},
        Wrong{"moe_capacity_drop",
              {zeros("probs", {3, 2}), indices("routing_map", {3, 2}, {0, 1, 1, 0, 0, 1})},
              "top_k=1,capacity_factor=-1",
              "capacity_factor is -1"},
        Wrong{"moe_capacity_drop",
              {zeros("probs", {3, 2}), indices("routing_map", {3, 2}, {0, 1, 1, 0, 0, 1})},
              "top_k=1,drop_policy=\"random\"",
              "expected probs or position"},
        Wrong{"moe_permute", {x, index2}, "", "'num_experts' is missing"},
        Wrong{"moe_permute",
              {x, index2},
              "num_experts=2",
              "the index 2 at position 2; expected 0 <= index < E = 2, or dropped = -1"},
        Wrong{"moe_permute", {x, index2}, "num_experts=3,top_k=3", "top_k is 3, but index has shape [3, 2]"},
        Wrong{"moe_permute",
              {x, index2},
              "num_experts=3,num_out_tokens=7",
              "num_out_tokens is 7; expected 0 to the 6 places"},
        Wrong{"moe_permute", {x, index2}, "num_experts=3,dropped=0", "dropped is 0; expected below 0"},
        Wrong{"moe_unpermute",
              {zeros("expert_out", {3, 2}), indices("sorted_index", {3}, {0, 2, 1})},
              "",
              "without probs, top_k must be given"},
        Wrong{"moe_unpermute",
              {zeros("expert_out", {3, 2}), indices("sorted_index", {3}, {0, 2, 1})},
              "top_k=2",
              "3 rows are no whole tokens of 2"},
        Wrong{"moe_unpermute",
              {zeros("expert_out", {2, 2}), indices("sorted_index", {2}, {0, 2})},
              "top_k=2",
              "expected 0 <= index < places = 2"},
        Wrong{"moe_unpermute",
              {zeros("expert_out", {2, 2}), indices("sorted_index", {2}, {0, 1}), zeros("probs", {1, 2})},
              "top_k=1",
              "probs have shape [1, 2]"},
        Wrong{"moe_dispatch",
              {ranks, index3},
              "num_experts=4",
              "4 experts on 3 ranks; where each has not as many, 'placement' must say which"},
        Wrong{"moe_dispatch", {ranks, index2}, "num_experts=3", "'index' has shape [3, 2]; expected [R,N,K]"},
        Wrong{"moe_dispatch", {ranks, index3}, "num_experts=3,order=\"token\"", "expected expert or rank"},
        Wrong{"moe_dispatch",
              {ranks, index3, indices("placement", {3}, {0, 1, 3})},
              "num_experts=3",
              "'placement' has the index 3"},
        Wrong{"moe_combine",
              {zeros("expert_out", {5, 2}), index3},
              "num_experts=3",
              "'expert_out' has shape [5, 2]"},
        Wrong{"moe_aux_loss", {logits}, "", "'top_k' is missing"},
        Wrong{"moe_aux_loss",
              {logits},
              "top_k=1,kind=\"global\"",
              "kind is \"global\"; expected sequence, micro_batch, ep_group or dp_group"},
        Wrong{"moe_aux_loss",
              {logits},
              "top_k=1,kind=\"ep_group\"",
              "kind ep_group goes with 'group_tokens_per_expert'"},
        Wrong{"moe_aux_loss",
              {logits, zeros("group_tokens_per_expert", {6})},
              "top_k=1,kind=\"sequence\"",
              "kind sequence goes without"},
        Wrong{"moe_aux_loss", {logits}, "top_k=1,group_size=2", "group_size is 2; above 1 it needs"},
        Wrong{"moe_aux_loss", {zeros("logits", {6})}, "top_k=1,kind=\"sequence\"", "expected [T, B, E]"}));

}  // namespace
}  // namespace assay::moe_test
