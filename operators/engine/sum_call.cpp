#include "assay/operators/engine/sum_call.h"

#include "assay/golden/error.h"

namespace assay {

SumKernel SumKernel::of(std::string_view kind, std::int64_t terms, DType dtype, std::int64_t rows,
                        std::int64_t columns) {
  if (kind != "sum" && kind != "dot" && kind != "matmul")
    throw Error("there is no order of a '{}'; expected sum, dot or matmul", kind);
  if (terms < 1 || rows < 1 || columns < 1)
    throw Error("a {} of {} terms, {} rows and {} columns; expected 1 or more of each", kind, terms, rows,
                columns);
  SumKernel kernel;
  kernel.op = &find_operator(kind == "sum" ? "reduce_sum" : "matmul");
  kernel.asked = {terms, dtype, kind != "sum"};
  kernel.is_matmul = kind == "matmul";
  if (kernel.is_matmul) {
    kernel.rows = rows;
    kernel.columns = columns;
  }
  return kernel;
}

std::vector<NamedTensor> SumKernel::inputs(const SumQuestion& q) const {
  const auto vector = [&](const std::vector<double>& v) {
    return Tensor::from_values(asked.dtype, {asked.terms}, v);
  };
  if (!asked.has_products) return {{"x", vector(q.x)}};
  if (!is_matmul) return {{"a", vector(q.x)}, {"b", vector(q.y)}};
  std::vector<double> a, b;
  for (std::int64_t m = 0; m < rows; ++m) a.insert(a.end(), q.x.begin(), q.x.end());
  for (const double y : q.y) b.insert(b.end(), static_cast<std::size_t>(columns), y);
  return {{"a", Tensor::from_values(asked.dtype, {rows, asked.terms}, a)},
          {"b", Tensor::from_values(asked.dtype, {asked.terms, columns}, b)}};
}

Shape SumKernel::output_shape() const {
  return is_matmul ? Shape{rows, columns} : Shape();
}

void SumKernel::expect_output(const Tensor& made) const {
  if (made.size() != rows * columns || !is_float(made.dtype()))
    throw Error("the kernel made {} {}; expected {} of floats", name(made.dtype()), to_string(made.shape()),
                rows * columns == 1 ? "one number" : to_string(output_shape()));
}

}  // namespace assay
