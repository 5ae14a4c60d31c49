#include "assay/align/arithmetic/arithmetic.h"

#include "assay/align/arithmetic/mixed_precision.h"
#include "assay/golden/error.h"
#include "assay/operators/engine/exact.h"

namespace assay::align {
namespace {

constexpr std::string_view names[] = {"fp64", "fp32", "exact", "bf16", "fp16", "fp8"};

class Plain : public Arithmetic {
 public:
  explicit Plain(Level level) : level_(level) {}
  DType storage() const override { return level_ == Level::fp64 ? DType::float64 : DType::float32; }
  std::vector<NamedTensor> compute(const std::string&, const Operator& op,
                                   std::span<const NamedTensor> inputs,
                                   const Attributes& attributes) const override {
    return compute_golden(op, inputs, attributes, level_);
  }
  Tensor add(std::span<const Tensor> open, ReduceOrder order) const override {
    return open.size() == 1 ? open.front() : add_in_order(open, order);
  }
  Tensor close(const Tensor& open) const override { return open; }
  Tensor open(const Tensor& closed) const override { return closed; }
  std::size_t leading() const override { return 0; }

 private:
  Level level_;
};

class ExactSums : public Arithmetic {
 public:
  DType storage() const override { return DType::float32; }
  std::vector<NamedTensor> compute(const std::string&, const Operator& op,
                                   std::span<const NamedTensor> inputs,
                                   const Attributes& attributes) const override {
    return compute_exact(op, inputs, attributes);
  }
  Tensor add(std::span<const Tensor> open, ReduceOrder) const override { return add_unrounded(open); }
  Tensor close(const Tensor& open) const override { return round_unrounded(open, storage()); }
  Tensor open(const Tensor& closed) const override { return unrounded(closed); }
  std::size_t leading() const override { return 1; }
};

}  // namespace

std::string_view name(Precision precision) {
  return names[static_cast<std::size_t>(precision)];
}

Precision parse_precision(std::string_view text) {
  for (std::size_t k = 0; k < std::size(names); ++k) {
    if (names[k] == text) return static_cast<Precision>(k);
  }
  throw Error("--precision is '{}'; expected fp64, fp32, exact, bf16, fp16 or fp8", text);
}

Tensor Arithmetic::result(std::string_view op, const std::vector<NamedTensor>& inputs,
                          const Attributes& attributes) const {
  return close(compute("", find_operator(op), inputs, attributes).front().tensor);
}

std::shared_ptr<const Arithmetic> arithmetic(Precision precision, RoundSum round) {
  switch (precision) {
    case Precision::fp64:
      return std::make_shared<Plain>(Level::fp64);
    case Precision::fp32:
      return std::make_shared<Plain>(Level::report);
    case Precision::bf16:
    case Precision::fp16:
    case Precision::fp8:
      return mixed_precision(precision, round);
    case Precision::exact:
      return std::make_shared<ExactSums>();
  }
  throw Error("no such precision");
}

}  // namespace assay::align
