#include "assay/align/arithmetic/fp8_matmul.h"

#include "assay/align/arithmetic/pieces.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/fp8_codes.h"

namespace assay::align {
namespace {

constexpr std::int64_t block = fp8_block;

Tensor transposed(const Tensor& t) {
  return compute_golden(find_operator("transpose"), std::vector<NamedTensor>{{"x", t}},
                        {{"perm", std::vector<double>{1, 0}}}, Level::report)
      .front()
      .tensor;
}

// a b^T. @param rows  of b that share a scale
Tensor product(const Fp8Codes& a, const Fp8Codes& b, std::int64_t rows) {
  return compute_golden(find_operator("fp8_block_matmul"),
                        std::vector<NamedTensor>{
                            {"a", a.code}, {"scale_a", a.scale}, {"b", b.code}, {"scale_b", b.scale}},
                        {{"block", block}, {"rows", rows}}, Level::report)
      .front()
      .tensor;
}

Tensor forward(const Tensor& x, const Tensor& w) {
  return product(quantize_fp8(x, 1, block), quantize_fp8(w, block, block), block);
}
Tensor gradient_of_x(const Tensor& grad_y, const Tensor& w) {
  return product(quantize_fp8(grad_y, 1, block), quantize_fp8(transposed(w), block, block), block);
}
Tensor gradient_of_w(const Tensor& grad_y, const Tensor& x) {
  const Tensor kept = quantize_fp8(x, 1, block).dequantized;
  return product(quantize_fp8(transposed(grad_y), 1, block), quantize_fp8(transposed(kept), 1, block), 1);
}

// One expert behind the other; an expert without tokens has no rows, and the gradient 0.
struct Groups {
  std::vector<std::int64_t> sizes;
  Shape w;  ///< of each

  template <class F>
  Tensor of_rows(const Tensor& rows, const Tensor& weights, std::int64_t columns, F each) const {
    std::vector<Tensor> parts = {Tensor(DType::float32, {0, columns})};
    at_each([&](std::int64_t g, std::int64_t begin, std::int64_t end) {
      if (begin < end)
        parts.push_back(each(piece(rows, 0, begin, end), piece(weights, 0, g, g + 1).reshaped(w)));
    });
    return joined(parts, 0);
  }
  Tensor of_weights(const Tensor& grad_y, const Tensor& x) const {
    std::vector<Tensor> parts;
    at_each([&](std::int64_t, std::int64_t begin, std::int64_t end) {
      const Tensor own = begin < end ? gradient_of_w(piece(grad_y, 0, begin, end), piece(x, 0, begin, end))
                                     : Tensor(DType::float32, w);
      parts.push_back(own.reshaped({1, w[0], w[1]}));
    });
    return joined(parts, 0);
  }

 private:
  template <class F>
  void at_each(F f) const {
    std::int64_t begin = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      f(static_cast<std::int64_t>(g), begin, begin + sizes[g]);
      begin += sizes[g];
    }
  }
};

Groups groups_of(const Operator& op, std::span<const NamedTensor> inputs, const Attributes& attributes) {
  const Tensor& w = output_named(inputs, "w");
  if (op.name == "linear") return {{output_named(inputs, "x").shape().front()}, w.shape()};
  if (op.name != "grouped_matmul" || !complete_attributes(op, attributes).flag("transpose_weight"))
    throw Error("{} has no fp8 matmul; expected linear, or grouped_matmul with transpose_weight", op.name);
  return {output_named(inputs, "group_sizes").indices(), {w.shape()[1], w.shape()[2]}};
}

}  // namespace

std::vector<NamedTensor> fp8_matmul(const Operator& op, std::span<const NamedTensor> inputs,
                                    const Attributes& attributes) {
  const Groups groups = groups_of(op, inputs, attributes);
  const Tensor &x = output_named(inputs, "x"), &w = output_named(inputs, "w");
  const Tensor weights =
      w.reshaped({static_cast<std::int64_t>(groups.sizes.size()), groups.w[0], groups.w[1]});
  std::vector<NamedTensor> results = {{"y", groups.of_rows(x, weights, groups.w[0], forward)}};
  if (const Tensor* grad_y = find_tensor(inputs, "grad_y")) {
    results.push_back({"grad_x", groups.of_rows(*grad_y, weights, groups.w[1], gradient_of_x)});
    results.push_back({"grad_w", groups.of_weights(*grad_y, x).reshaped(w.shape())});
  }
  return results;
}

}  // namespace assay::align
