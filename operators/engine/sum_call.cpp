#include "assay/operators/engine/sum_call.h"

#include <utility>

#include "assay/golden/error.h"

namespace assay {

namespace {

// Each stretch of so many elements again and again.
Tensor repeated(const Tensor& t, Shape shape, std::int64_t stretch, std::int64_t times) {
  const std::size_t size = static_cast<std::size_t>(stretch) * size_of(t.dtype());
  std::vector<std::byte> bytes;
  bytes.reserve(t.bytes().size() * static_cast<std::size_t>(times));
  for (std::size_t begin = 0; begin < t.bytes().size(); begin += size) {
    const auto part = t.bytes().subspan(begin, size);
    for (std::int64_t i = 0; i < times; ++i) bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return {t.dtype(), std::move(shape), std::move(bytes)};
}

}  // namespace

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
  return {{"a", repeated(vector(q.x), {rows, asked.terms}, asked.terms, rows)},
          {"b", repeated(vector(q.y), {asked.terms, columns}, 1, columns)}};
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
