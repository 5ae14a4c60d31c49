#include "calls.h"

// A call that cannot be right ends in one Error that says what is wrong; never in a crash.
namespace assay::errors_test {
namespace {

using testing::HasSubstr;

class WrongCall : public testing::TestWithParam<Wrong> {};

TEST_P(WrongCall, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const NamedTensor x46 = zeros("x", {4, 6}), w6 = zeros("weight", {6}), w74 = zeros("weight", {7, 4});

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongCall,
    testing::Values(
        Wrong{"rms_norm",
              {x46, w6},
              "epsilon=1",
              "rms_norm has no attribute 'epsilon'; it has eps, normalized_shape"},
        Wrong{"rms_norm", {x46, w6}, "eps=\"small\"", "attribute 'eps' is a string; expected a number"},
        Wrong{"rms_norm", {w6}, "", "input 'x' is missing"},
        Wrong{"rms_norm", {x46, w6, zeros("bias", {6})}, "", "rms_norm has no input 'bias'"},
        Wrong{"rms_norm", {x46, x46, w6}, "", "input 'x' is given twice"},
        Wrong{"rms_norm",
              {x46, zeros("weight", {5})},
              "",
              "'weight' has shape [5]; expected [C*] with C = [6]"},
        Wrong{"rms_norm",
              {zeros("x", {}), w6},
              "",
              "cannot normalise the last 1 dimensions of x, whose shape is []"},
        Wrong{"rms_norm", {x46, w6, zeros("grad_y", {4})}, "", "'grad_y' has shape [4]"},
        Wrong{"matmul", {zeros("a", {2, 3}), zeros("b", {4, 5})}, "", "'b' has shape [4, 5]"},
        Wrong{"matmul", {zeros("a", {}), zeros("b", {4, 5})}, "", "'a' has shape []; expected [A*,M*,K]"},
        Wrong{"matmul", {zeros("a", {2, 2, 3}), zeros("b", {3, 3, 5})}, "", "cannot be broadcast"},
        Wrong{"matmul",
              {zeros("a", {0, 1 << 30}), zeros("b", {1 << 30, 0})},
              "transpose_a=true,transpose_b=true",
              "'y' of shape [1073741824, 1073741824] has 1152921504606846976 elements; expected at most "
              "1073741824"},
        Wrong{"softmax", {x46}, "dim=2", "dim 2 is outside of a tensor with 2 dimensions"},
        Wrong{"softmax", {x46}, "dim=0.5", "expected an integer"},
        Wrong{"reduce_sum", {x46}, "dims=[0,-2]", "named twice"},
        Wrong{"reduce_sum", {x46}, "dims=[5]", "dim 5 is outside"},
        Wrong{"embedding",
              {w74, indices("index", {2}, {0, 7})},
              "",
              "the index 7 at position 1; expected 0 <= index < V = 7"},
        Wrong{"embedding", {w74, indices("index", {1}, {-1})}, "", "the index -1"},
        Wrong{"embedding", {w74, zeros("index", {2})}, "", "'index' is float32; expected an integer dtype"},
        Wrong{"embedding", {w74, indices("index", {1}, {0})}, "padding_idx=7", "padding_idx 7"},
        Wrong{"embedding", {w74, indices("index", {1}, {5})}, "offset=2", "offset of 2 is no row of 7"},
        Wrong{"cross_entropy",
              {zeros("logits", {2, 3}), indices("target", {2}, {0, -7})},
              "",
              "or ignore_index = -100"},
        Wrong{"cross_entropy",
              {zeros("logits", {2, 3}), indices("target", {2}, {0, 1})},
              "reduction=\"max\"",
              "expected mean, sum or none"},
        Wrong{"cross_entropy",
              {zeros("logits", {2, 3}), indices("target", {2}, {0, 1})},
              "label_smoothing=2",
              "0 to 1"},
        Wrong{"rope", {zeros("x", {3, 5})}, "", "even"},
        Wrong{"rope", {zeros("x", {3, 4})}, "style=\"twisted\"", "expected half or interleaved"},
        Wrong{"rope", {zeros("x", {3, 4})}, "rotary_dim=-2", ""},
        Wrong{"rotary_embedding",
              {indices("position_ids", {0}, {})},
              "rotary_dim=1099511627776",
              "rotary_dim is 1099511627776; expected at most 1073741824"},
        Wrong{"rotary_attention",
              {zeros("q", {1, 2, 8}), zeros("k", {1, 2, 8}), zeros("v", {1, 2, 8})},
              "",
              "'head_dim' is missing"},
        Wrong{"cross_attention",
              {zeros("q", {2, 2, 8}), zeros("k", {2, 3, 8}), zeros("v", {2, 3, 8}),
               indices("mask", {2, 2}, {1, 1, 1, 0})},
              "head_dim=8",
              "mask has shape [2, 2]; expected [2, 3]"},
        Wrong{"qkv_attention",
              {zeros("qkv", {1, 2, 12}), indices("mask", {1, 2}, {1, 2})},
              "heads=2",
              "'mask' is no mask of keys"},
        Wrong{"rotary_attention",
              {zeros("q", {1, 2, 8}), zeros("k", {1, 2, 8}), zeros("v", {1, 2, 8})},
              "head_dim=8,unseen=\"none\"",
              "expected zeros, mean or either"},
        Wrong{"cross_attention",
              {zeros("q", {1, 2, 8}), zeros("k", {1, 3, 8}), zeros("v", {1, 3, 8})},
              "",
              "'head_dim' is missing"},
        Wrong{"cross_attention",
              {zeros("q", {1, 2, 8}), zeros("k", {1, 3, 6}), zeros("v", {1, 3, 8})},
              "head_dim=2",
              "expected whole heads"},
        Wrong{"apply_rotary",
              {zeros("x", {1, 2, 6}), zeros("cos", {2, 4}), zeros("sin", {2, 4})},
              "",
              "expected whole heads"},
        Wrong{"apply_rotary",
              {zeros("x", {1, 2, 8}), zeros("cos", {2, 4}), zeros("sin", {2, 4})},
              "layout=\"mixed\"",
              "expected heads_first, heads_last or same"},
        Wrong{"rotary_attention",
              {zeros("q", {2, 2, 8}), zeros("k", {2, 2, 8}), zeros("v", {2, 2, 8}), zeros("cos", {3, 2, 4}),
               zeros("sin", {3, 2, 4})},
              "",
              "cos has shape [3, 2, 4]; expected 2 rows or more, for all sequences alike or each of 2: [M, "
              "R] or [B, M, R]"},
        Wrong{"rotary_attention",
              {zeros("q", {1, 2, 8}), zeros("k", {1, 2, 8}), zeros("v", {1, 2, 8})},
              "heads_first=true",
              "expected [B,Q,L,D]"},
        Wrong{
            "rotary_attention",
            {zeros("q", {1, 2, 8}), zeros("k", {1, 2, 8}), zeros("v", {1, 2, 8}), zeros("cis", {1, 2, 2, 3})},
            "",
            "expected 2 rows or more, for all sequences alike or each of 1: [M, R / 2, 2] or [B, M, R / 2, "
            "2]"},
        Wrong{"rotary_attention",
              {zeros("q", {1, 2, 8}), zeros("k", {1, 2, 8}), zeros("v", {1, 2, 8}), zeros("sink", {3})},
              "head_dim=4",
              "sink has shape [3] for 2 heads"},
        Wrong{"multihead_attention",
              {zeros("query", {3, 2, 4}), zeros("in_proj_weight", {12, 4}), zeros("out_proj_weight", {4, 4})},
              "",
              "'num_heads' is missing"},
        Wrong{"multihead_attention",
              {zeros("query", {3, 2, 4}), zeros("in_proj_weight", {12, 4}), zeros("out_proj_weight", {4, 4})},
              "num_heads=3",
              "4 channels in 3 heads; expected heads that divide them"},
        Wrong{"multihead_attention",
              {zeros("query", {3, 2, 4}), zeros("q_proj_weight", {4, 4}), zeros("out_proj_weight", {4, 4})},
              "num_heads=2",
              "expected in_proj_weight, or q_proj_weight, k_proj_weight, v_proj_weight"},
        Wrong{"multihead_attention",
              {zeros("query", {3, 2, 4}), zeros("key", {5, 2, 6}), zeros("in_proj_weight", {12, 4}),
               zeros("out_proj_weight", {4, 4})},
              "num_heads=2",
              "in_proj_weight for 4, 6 and 6 channels; expected as many"},
        Wrong{"multihead_attention",
              {zeros("query", {3, 2, 4}), zeros("in_proj_weight", {12, 4}), zeros("out_proj_weight", {4, 4}),
               zeros("attn_bias", {2, 3, 3})},
              "num_heads=2",
              "attn_bias has shape [2, 3, 3]; expected [3, 3] or [4, 3, 3]"},
        Wrong{"qkv_attention",
              {zeros("qkv", {1, 2, 12})},
              "heads=2,alibi=\"linear\"",
              "expected first_key, last_key, distance, scaled or scaled_twice"},
        Wrong{"qkv_attention", {zeros("qkv", {1, 2, 12})}, "heads=2,alibi_bias_max=0", "alibi_bias_max is 0"},
        Wrong{"qkv_attention", {zeros("qkv", {1, 2, 12})}, "", "'heads' is missing"},
        Wrong{"qkv_attention", {zeros("qkv", {1, 2, 13})}, "heads=2", "13 channels for 2 heads and 2 groups"},
        Wrong{"qkv_attention",
              {zeros("qkv", {1, 2, 12}), zeros("cos", {1, 2, 2})},
              "heads=2",
              "cos and sin go together"},
        Wrong{"qkv_attention",
              {zeros("qkv", {1, 2, 12})},
              "heads=2,layout=\"rows\"",
              "expected parts or groups"},
        Wrong{"scaled_embedding",
              {zeros("weight", {3, 2}), indices("index", {1}, {0})},
              "padding_idx=3",
              "scaled_embedding: padding_idx 3 is no row of 3"},
        Wrong{"rope", {zeros("x", {3, 4})}, "frequencies=[1]", "has 1 numbers for 4 channels that turn"},
        Wrong{"mul_half", {zeros("a", {3, 5}), zeros("x", {3, 5})}, "", "expected twice the channels"},
        Wrong{"swiglu", {zeros("x", {3, 5})}, "", "must be even"},
        Wrong{"swiglu", {zeros("gate", {3, 5})}, "", "either x, or gate and up"},
        Wrong{"layer_norm", {x46}, "normalized_shape=[5]", "normalized_shape"},
        Wrong{"layer_norm", {x46}, "normalized_shape=[1,4,6]", "cannot normalise the last 3"},
        Wrong{"reduce_sum", {x46}, "dims=[0.5]", "'dims' is 0.5; expected an integer"},
        Wrong{"reduce_sum", {x46}, "dims=[1e300]", "expected an integer"},
        Wrong{"clip_grad_norm", {}, "", "input 'grad_#' is missing"},
        Wrong{"clip_grad_norm",
              {zeros("grad_0", {2}), zeros("grad_2", {2})},
              "",
              "input 'grad_2' is one of 2; expected the numbers 0 to 1"},
        Wrong{"clip_grad_norm", {zeros("grad_1", {2})}, "", "expected the numbers 0 to 0"},
        Wrong{"clip_grad_norm", {zeros("grad_0", {2}), zeros("grad_01", {2})}, "", "no input 'grad_01'"},
        Wrong{"clip_grad_norm", {zeros("grad_0", {2})}, "norm_type=\"two\"", "expected a number"},
        Wrong{"adamw", {zeros("param", {2}), zeros("grads", {3, 2})}, "steps=2", "steps is 2"},
        Wrong{"adamw", {zeros("param", {2}), zeros("grads", {3, 2})}, "betas=[0.9]", "expected 2"},
        Wrong{"adamw", {zeros("param", {2}), zeros("grads", {3})}, "", "'grads' has shape [3]"}));

TEST(FindOperator, SuggestsTheNearestName) {
  EXPECT_EQ(find_operator("torch.nn.functional.rms_norm").name, "rms_norm");
  EXPECT_EQ(known_operator("rmsnorm"), nullptr);
  try {
    find_operator("rmsnorm");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'rms_norm'"));
  }
}

TEST(AccumulationCount, OfAnOutputThatIsNotThereIsAnError) {
  for (const char* output :
       {"params", "param_", "param_01", "param_-1", "param_99999999999999999999", "grads"}) {
    EXPECT_THROW(accumulation_count(find_operator("adamw"), output, Dims()), Error) << output;
  }
  EXPECT_EQ(accumulation_count(find_operator("adamw"), "param_12", Dims()), 12);
}

TEST(ParseAttribute, ReadsWhatCaseFilesHold) {
  EXPECT_EQ(parse_attribute(" 1e-5 "), AttributeValue(1e-5));
  EXPECT_EQ(parse_attribute("true"), AttributeValue(true));
  EXPECT_EQ(parse_attribute("null"), AttributeValue());
  EXPECT_EQ(parse_attribute("\"mean\""), AttributeValue(std::string("mean")));
  EXPECT_EQ(parse_attribute("[0.9, 0.999]"), AttributeValue(std::vector<double>{.9, .999}));
  EXPECT_EQ(parse_attribute("[]"), AttributeValue(std::vector<double>()));
  for (const char* wrong :
       {"", "mean", "1e", "[1, x]", "[1", "{}", "nan", "inf", "-inf", "[1, nan]", "infinity"}) {
    EXPECT_THROW(parse_attribute(wrong), Error) << wrong;
  }
}

TEST(Generate, IsTheSameForTheSameSeedOnly) {
  const Operator& op = find_operator("rms_norm");
  const CallShape call = parse_call({"N=2x3,C=4"});
  const auto values = [&](std::uint64_t seed) {
    return generate_inputs(op, call, Fill::random, DType::float32, seed)[0].tensor.values();
  };
  EXPECT_EQ(values(1), values(1));
  EXPECT_NE(values(1), values(2));
  // A golden file must not depend on the machine that generated its inputs.
  EXPECT_EQ(values(1)[0], 0x1.b7498ep+1);
}

TEST(Generate, SaysWhatIsMissing) {
  const Operator& op = find_operator("rms_norm");
  EXPECT_THROW(generate_inputs(op, parse_call({"N=2"}), Fill::random, DType::float32, 1), Error);
  EXPECT_THROW(parse_call({"N"}), Error);
  EXPECT_THROW(parse_call({"N=2y"}), Error);
  EXPECT_THROW(parse_fill("ones"), Error);
  EXPECT_THROW(generate_inputs(find_operator("embedding"), parse_call({"V=0,C=2,N=1"}), Fill::random,
                               DType::float32, 1),
               Error);
}

}  // namespace
}  // namespace assay::errors_test
