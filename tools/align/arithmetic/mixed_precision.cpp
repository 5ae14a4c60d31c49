#include "assay/align/arithmetic/mixed_precision.h"

#include <algorithm>

#include "assay/align/arithmetic/fp8_matmul.h"
#include "assay/dumps/record/glob.h"

namespace assay::align {
namespace {

using enum Operands;

constexpr std::string_view deepseek = "DeepSeek-V3 arXiv:2412.19437 sec. 3.3.1";
constexpr std::string_view norms = "TeleChat3: norms, softmax, RoPE and router in float32",
                           computes = "TeleChat3: computes in bfloat16",
                           residual = "TeleChat3: the residual is float32",
                           mapped =
                               "elementwise between bfloat16 tensors, float32 inside: swiglu of Megatron-LM",
                           moved =
                               "a copy of elements, or a sum or product of them that goes on as they were";

// DeepSeek-V3 keeps embedding, output head, gates, norms and attention out of fp8.
constexpr PrecisionRow of_fp8[] = {
    {"linear", "lm_head", half, Result::half, deepseek},
    {"linear", "*.shared_head", half, Result::half, deepseek},
    {"linear", "*.gate", stored, Result::float32, deepseek},
    {"linear", "*.shared_expert_gate", half, Result::half, deepseek},
    {"linear", "*", fp8_blocks, Result::half, deepseek},
    {"grouped_matmul", "*", fp8_blocks, Result::half, deepseek},
};

constexpr PrecisionRow of_all[] = {
    {"linear", "*.gate", stored, Result::float32, norms},
    {"linear", "*", half, Result::half, computes},
    {"grouped_matmul", "*", half, Result::half, computes},
    {"attention", "*", stored, Result::half, norms},
    {"rms_norm", "*", stored, Result::half, norms},
    {"rope", "*", stored, Result::half, norms},
    {"swiglu", "*", stored, Result::half, mapped},
    {"sigmoid", "*", stored, Result::half, mapped},
    {"moe_unpermute", "*", stored, Result::half, computes},
    {"add", "*.mlp*", stored, Result::half, computes},
    {"add", "*.self_attn*", stored, Result::half, computes},
    {"add", "*", stored, Result::float32, residual},
    {"concat", "*", stored, Result::as_first_operand, moved},
    {"expand", "*", stored, Result::as_first_operand, moved},
    {"index_select", "*", stored, Result::as_first_operand, moved},
    {"moe_permute", "*", stored, Result::as_first_operand, moved},
    {"mul", "*", stored, Result::as_first_operand, moved},
    {"reshape", "*", stored, Result::as_first_operand, moved},
    {"slice", "*", stored, Result::as_first_operand, moved},
    {"transpose", "*", stored, Result::as_first_operand, moved},
    {"*", "*", stored, Result::float32, "embedding, losses, optimizer: parameters are float32"},
};

const PrecisionRow* first_match(std::span<const PrecisionRow> rows, std::string_view op,
                                std::string_view module) {
  const auto row = std::ranges::find_if(
      rows, [&](const PrecisionRow& r) { return glob_match(r.op, op) && glob_match(r.module, module); });
  return row == rows.end() ? nullptr : &*row;
}

Tensor rounded(const Tensor& t, DType to) {
  return t.dtype() == to ? t : Tensor::from_values(to, t.shape(), t.values());
}

class MixedPrecision : public Arithmetic {
 public:
  MixedPrecision(Precision precision, RoundSum round)
      : precision_(precision),
        half_(precision == Precision::fp16 ? DType::float16 : DType::bfloat16),
        round_(round) {}

  DType storage() const override { return DType::float32; }
  std::size_t leading() const override { return 0; }
  Tensor close(const Tensor& open) const override { return open; }
  Tensor open(const Tensor& closed) const override { return closed; }
  Tensor add(std::span<const Tensor> open, ReduceOrder order) const override {
    return open.size() == 1 ? open.front() : add_in_order(open, order, round_);
  }

  std::vector<NamedTensor> compute(const std::string& module, const Operator& op,
                                   std::span<const NamedTensor> inputs,
                                   const Attributes& attributes) const override {
    const PrecisionRow& row = precision_row(precision_, op.name, module);
    std::vector<NamedTensor> results = run(row.operands, op, inputs, attributes);
    for (NamedTensor& y : results) {
      if (!is_float(y.tensor.dtype())) continue;
      const bool first = &y == &results.front();
      const bool is_gradient = output_arg(op, y.name).role == Role::grad_input;
      y.tensor = rounded(y.tensor, is_gradient ? of_gradient(op, y.name, inputs)
                                   : first     ? of_result(row.result, inputs)
                                               : DType::float32);
    }
    return results;
  }

 private:
  std::vector<NamedTensor> run(Operands operands, const Operator& op, std::span<const NamedTensor> inputs,
                               const Attributes& attributes) const {
    if (operands == fp8_blocks) return fp8_matmul(op, inputs, attributes);
    std::vector<NamedTensor> taken(inputs.begin(), inputs.end());
    if (operands == half) {
      for (NamedTensor& x : taken) {
        if (is_float(x.tensor.dtype())) x.tensor = rounded(x.tensor, half_);
      }
    }
    return compute_golden(op, taken, attributes, Level::report);
  }

  DType of_result(Result result, std::span<const NamedTensor> inputs) const {
    if (result == Result::half) return half_;
    return result == Result::float32 ? DType::float32 : inputs.front().tensor.dtype();
  }

  DType of_gradient(const Operator& op, const std::string& gradient,
                    std::span<const NamedTensor> inputs) const {
    const std::string input = gradient.substr(std::string_view("grad_").size());
    if (input_arg(op, input).role == Role::param) return DType::float32;
    return find_tensor(inputs, input)->dtype();
  }

  Precision precision_;
  DType half_;
  RoundSum round_;
};

}  // namespace

const PrecisionRow& precision_row(Precision precision, std::string_view op, std::string_view module) {
  const PrecisionRow* own = precision == Precision::fp8 ? first_match(of_fp8, op, module) : nullptr;
  return own != nullptr ? *own : *first_match(of_all, op, module);
}

std::shared_ptr<const Arithmetic> mixed_precision(Precision precision, RoundSum round) {
  return std::make_shared<MixedPrecision>(precision, round);
}

}  // namespace assay::align
