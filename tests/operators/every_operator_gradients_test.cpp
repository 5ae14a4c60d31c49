#include "every_operator.h"

namespace assay::every_operator_gradients_test {
namespace {

TEST_P(EveryOperator, BackwardIsTheDerivativeOfForward) {
  if (!op.has_backward) GTEST_SKIP() << op.name << " declares no backward";
  // x of at most 11 significand bits + h is exact in float64.
  constexpr double h = 0x1p-40;
  for (const CallShape& call : calls()) {
    std::vector<NamedTensor> inputs;
    for (const NamedTensor& input : generate_inputs(op, call, Fill::random, DType::bfloat16, 3)) {
      const bool index = !is_float(input.tensor.dtype());
      inputs.push_back({input.name, index ? input.tensor
                                          : Tensor::from_values(DType::float64, input.tensor.shape(),
                                                                input.tensor.values())});
    }
    const auto gradients = outputs<Truth>(op, inputs, call.attributes);
    // A rounding has no derivative: straight-through gradients are those of the call without it.
    Attributes smooth = call.attributes;
    if (!op.straight_through.empty()) smooth.set(std::string(op.straight_through), std::monostate());
    // "grad_y" belongs to the output y; a loss has the one grad_y too.
    const auto functional = [&](const std::vector<NamedTensor>& at) {
      const auto results = outputs<Truth>(op, at, smooth);
      const auto output_of = [&](const std::string& grad) {
        const auto own = results.find(grad.substr(5));
        const auto first = std::ranges::find(op.args, Role::output, &Arg::role);
        return own != results.end() ? own->second : results.at(std::string(first->name));
      };
      Truth total = 0;
      for (const Arg& arg : op.args) {
        if (arg.role != Role::grad_output) continue;
        bool given = false;
        for (const NamedTensor& tensor : at) {
          if (!names(arg, tensor.name)) continue;
          given = true;
          const auto y = output_of(tensor.name);
          const auto g = tensor.tensor.values();
          for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * Truth(g[i]);
        }
        const bool alone = std::ranges::none_of(
            op.args, [](const Arg& a) { return a.role == Role::grad_output && !a.optional; });
        if (given || !alone) continue;
        for (const Truth& y : output_of(std::string(arg.name))) total += y;
      }
      return total;
    };
    for (NamedTensor& input : inputs) {
      const auto gradient = gradients.find("grad_" + input.name);
      if (gradient == gradients.end()) continue;
      const Tensor original = input.tensor;
      for (const std::int64_t i : sample(original.size())) {
        input.tensor = with_element(original, i, original.value(i) + h);
        const Truth above = functional(inputs);
        input.tensor = with_element(original, i, original.value(i) - h);
        const Truth below = functional(inputs);
        input.tensor = original;
        const auto slope = static_cast<double>((above - below) / Truth(2 * h));
        const auto error = static_cast<double>(gradient->second[static_cast<std::size_t>(i)] -
                                               (above - below) / Truth(2 * h));
        EXPECT_LE(std::abs(error), 1e-18 * (1 + std::abs(slope))) << gradient->first << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace assay::every_operator_gradients_test
