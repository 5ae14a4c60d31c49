// What bf16, fp16 and fp8 store in which format, against PyTorch's casts: tests/data/replay/make_mixed.py.
#include "assay/align/arithmetic/mixed_precision.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "assay/align/arithmetic/fp8_matmul.h"
#include "assay/operators/engine/fp8_codes.h"
#include "expected.h"

namespace assay::align::mixed_precision_test {
namespace {

using testing::ElementsAre;

nlohmann::json expected_of(Precision precision) {
  return expected("expected_mixed.json")[std::string(name(precision))];
}

// Telechat3's layer of experts alone: behind a few layers numbers that were rounded to a neighbour have
// spread.
Model one_layer() {
  Model model = load_model("telechat3-105b-tiny");
  model.layers = 1;
  model.dense_layers = 0;
  model.losses.mtp_depth = 0;
  return model;
}

class Half : public testing::TestWithParam<Precision> {
 protected:
  DType half() const { return GetParam() == Precision::fp16 ? DType::float16 : DType::bfloat16; }
};
INSTANTIATE_TEST_SUITE_P(Precisions, Half, testing::Values(Precision::bf16, Precision::fp16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(Half, GivesTheLossesAndGradientsOfPyTorchWithTheSameCasts) {
  const nlohmann::json want = expected_of(GetParam());
  const Model model = one_layer();
  // Of 24 tokens in float32.
  const double loss = want["total"], of_loss = 24 * unit_roundoff(DType::float32) * loss;
  // Float32 sums in another order move a stored number over to its neighbour here and there: not a quarter of
  // a rounding over all terms of a gradient. A cast in another place moves every number.
  const double of_gradient = unit_roundoff(half()) / 4;
  on_tape(
      model, batch, 0,
      [&](Tape& tape) {
        const std::vector<Loss> losses = forward(tape, model, batch, whole(model)).losses;
        EXPECT_NEAR(total(tape, losses), loss, of_loss);
        go_back(tape, losses);
        expect_gradients(tape, want["gradients"], of_gradient);
      },
      GetParam());
}

TEST_P(Half, StoresTensorsInTheFormatsOfTheRecipe) {
  const Model model = one_layer();
  std::map<std::string, std::set<DType>> of_outputs, of_gradients;
  const auto take_down = [](std::set<DType>& all, const Tensor& t) { all.insert(t.dtype()); };
  on_tape(
      model, batch, 0,
      [&](Tape& tape) {
        const std::vector<Loss> losses = forward(tape, model, batch, whole(model)).losses;
        for (const Machine::Node& node : tape.nodes())
          take_down(of_outputs[fmt::format("{} {}", node.module, node.op->name)],
                    tape.tensor(node.outputs.front().value));
        tape.backward({{losses.front().value, Tensor::from_values(DType::float32, {}, std::vector{1.0})}},
                      [&](const Machine::Node& node, const auto&, const auto& of_inputs) {
                        for (const NamedTensor& g : of_inputs)
                          take_down(of_gradients[fmt::format("{} {} {}", node.module, node.op->name, g.name)],
                                    g.tensor);
                      });
      },
      GetParam());
  const auto outputs = [&](const std::string& call) {
    return of_outputs.at(call.starts_with("model") || call.starts_with("lm_head") ? call
                                                                                  : "model.layers.0" + call);
  };
  const std::set<DType> only_half = {half()}, only_float = {DType::float32};
  EXPECT_EQ(outputs("model.embed_tokens embedding"), only_float);
  EXPECT_EQ(outputs(" add"), only_float);  // the residual
  EXPECT_EQ(outputs(".mlp.gate linear"), only_float);
  EXPECT_EQ(outputs(".mlp router_topk"), only_float);
  EXPECT_EQ(outputs("lm_head cross_entropy"), only_float);
  for (const char* call : {".input_layernorm rms_norm", ".self_attn.q_b_proj linear", ".self_attn rope",
                           ".self_attn attention", ".mlp.experts.*.gate_proj grouped_matmul",
                           ".mlp.experts.* swiglu", ".mlp moe_unpermute", ".mlp add", "lm_head linear"})
    EXPECT_EQ(outputs(call), only_half) << call;
  const auto gradients = [&](const std::string& call) { return of_gradients.at("model.layers.0" + call); };
  EXPECT_EQ(gradients(".self_attn.q_b_proj linear grad_x"), only_half);
  EXPECT_EQ(gradients(".mlp.gate linear grad_x"), only_half);
  EXPECT_EQ(gradients(".input_layernorm rms_norm grad_x"), only_float);
  EXPECT_EQ(gradients(".self_attn.q_b_proj linear grad_w"), only_float);
}

// Codes as PyTorch's casts give them, of boxes that are cut off too.
TEST(Fp8, CodesAndScalesHaveTheBitsOfPyTorch) {
  const nlohmann::json want = expected_of(Precision::fp8)["codes"];
  const auto expect = [&](const char* what, const Tensor& t, std::int64_t rows, std::int64_t columns) {
    const Fp8Codes found = quantize_fp8(t, rows, columns);
    const Tensor codes = Tensor::from_values(DType::float8_e4m3fn, found.code.shape(), found.code.values());
    std::string hex;
    for (const std::byte code : codes.bytes()) hex += fmt::format("{:02x}", static_cast<unsigned>(code));
    EXPECT_EQ(hex, want[what]["code"].get<std::string>()) << what;
    EXPECT_EQ(found.scale.values(), want[what]["scale"].get<std::vector<double>>()) << what;
  };
  const auto drawn_part = [](const char* what, double scale, const Shape& shape, const Shape& part) {
    std::vector<double> values;
    const std::vector<double> all = drawn(what, element_count(shape));
    for (std::int64_t i = 0; i < part[0]; ++i) {
      for (std::int64_t j = 0; j < part[1]; ++j)
        values.push_back(scale * all[static_cast<std::size_t>(i * shape[1] + j)]);
    }
    return Tensor::from_values(DType::float32, part, values);
  };
  expect("activations", drawn_part("x", 4, {150, 200}, {3, 200}), 1, 128);
  expect("weights", drawn_part("w", 1, {140, 200}, {140, 2}), 128, 128);
  expect("gradients", drawn_part("grad_y", 1e-5, {150, 140}, {3, 140}), 1, 128);
}

std::vector<NamedTensor> drawn_linear() {
  const auto of = [](const char* what, double scale, const Shape& shape) {
    std::vector<double> values = drawn(what, element_count(shape));
    for (double& v : values) v *= scale;
    return NamedTensor{what, Tensor::from_values(DType::float32, shape, values)};
  };
  return {of("x", 4, {150, 200}), of("w", 1, {140, 200}), of("grad_y", 1e-5, {150, 140})};
}

// The products of the codes are exact; what is added up in float32 is a block, and then the blocks.
TEST(Fp8, AMatmulAndItsGradientsAreThoseOfTheQuantizedOperands) {
  const nlohmann::json want = expected_of(Precision::fp8)["products"];
  constexpr double longest = 128 + 2, scalings = 3;
  for (const NamedTensor& y : fp8_matmul(find_operator("linear"), drawn_linear(), {})) {
    const Sums found = sums(y.name, y.tensor);
    const double within =
        (longest + scalings) * unit_roundoff(DType::float32) * want[y.name][3].get<double>();
    EXPECT_NEAR(found.plain, want[y.name][0].get<double>(), within) << y.name;
    EXPECT_NEAR(found.weighed, want[y.name][1].get<double>(), within) << y.name;
  }
}

// Each expert's tokens are quantized for themselves: as a linear of their own.
TEST(Fp8, AGroupedMatmulIsALinearForEachGroup) {
  const std::vector<NamedTensor> one = drawn_linear();
  const auto doubled = [](const NamedTensor& t, Shape shape, bool rows) {
    std::vector<double> values = t.tensor.values(), more = values;
    for (double& v : more) v *= rows ? 3 : 0.5;
    values.insert(values.end(), more.begin(), more.end());
    return NamedTensor{t.name, Tensor::from_values(DType::float32, std::move(shape), values)};
  };
  const std::vector<NamedTensor> two = {
      doubled(one[0], {300, 200}, true),
      doubled(one[1], {2, 140, 200}, false),
      doubled(one[2], {300, 140}, true),
      {"group_sizes", Tensor::from_indices({3}, std::vector<std::int64_t>{150, 0, 150})}};
  std::vector<NamedTensor> three = two;
  std::vector<double> weights = two[1].tensor.values();
  weights.insert(weights.begin() + 140 * 200, 140 * 200, 1e3);  // of the expert without tokens
  three[1].tensor = Tensor::from_values(DType::float32, {3, 140, 200}, weights);
  const auto grouped = fp8_matmul(find_operator("grouped_matmul"), three, {{"transpose_weight", true}});
  const auto single = fp8_matmul(find_operator("linear"), one, {});
  for (const NamedTensor& y : grouped) {
    const std::vector<double> all = y.tensor.values(), first = output_named(single, y.name).values();
    ASSERT_GE(all.size(), 2 * first.size());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin())) << y.name;
  }
  const std::vector<double> of_none(140 * 200);
  EXPECT_TRUE(std::equal(of_none.begin(), of_none.end(),
                         output_named(grouped, "grad_w").values().begin() + 140 * 200));
}

TEST(Fp8, OnlyMatmulsOfLayersAreFp8) {
  const auto is_fp8 = [](const char* op, const char* module) {
    return precision_row(Precision::fp8, op, module).operands == Operands::fp8_blocks;
  };
  EXPECT_TRUE(is_fp8("linear", "model.layers.3.self_attn.o_proj"));
  EXPECT_TRUE(is_fp8("grouped_matmul", "model.layers.3.mlp.experts.*.up_proj"));
  for (const char* module : {"lm_head", "model.layers.4.shared_head", "model.layers.3.mlp.gate"})
    EXPECT_FALSE(is_fp8("linear", module)) << module;
  EXPECT_FALSE(is_fp8("attention", "model.layers.3.self_attn"));
}

// The residual alone; what is added inside of a block, also by a strategy, is the block's.
TEST(Residual, OnlyTheResidualIsAddedInFloat32) {
  const auto result = [](const char* module) { return precision_row(Precision::bf16, "add", module).result; };
  EXPECT_EQ(result("model.layers.0"), Result::float32);
  EXPECT_EQ(result("model.layers.0.mlp"), Result::half);
  EXPECT_EQ(result("model.layers.0.self_attn/ring"), Result::half);
}

// 257 is a tie between 256 and 258 in bfloat16.
TEST(RoundSum, IsBehindEachAdditionOrOnce) {
  const auto part = [](double x) { return Tensor::from_values(DType::bfloat16, {1}, std::vector{x}); };
  const std::vector<Tensor> parts = {part(256), part(1), part(1)};
  EXPECT_THAT(mixed_precision(Precision::bf16, RoundSum::each)->add(parts, ReduceOrder::ranks).values(),
              ElementsAre(256));
  EXPECT_THAT(mixed_precision(Precision::bf16, RoundSum::once)->add(parts, ReduceOrder::ranks).values(),
              ElementsAre(258));
  EXPECT_EQ(add_in_order(parts, ReduceOrder::tree).dtype(), DType::bfloat16);
}

}  // namespace
}  // namespace assay::align::mixed_precision_test
