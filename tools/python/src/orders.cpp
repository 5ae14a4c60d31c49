#include "orders.h"

#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/sum_call.h"
#include "text.h"

namespace nb = nanobind;

namespace assay::python {
namespace {

// (json, text, accumulator, additions)
nb::tuple reveal(const std::string& kind, std::int64_t terms, const std::string& dtype, std::int64_t rows,
                 std::int64_t columns, const nb::callable& call) {
  const auto parsed = parse_dtype(dtype);
  if (!parsed) throw Error("'{}' is no dtype; expected a torch name such as bfloat16", dtype);
  const SumKernel kernel = SumKernel::of(kind, terms, *parsed, rows, columns);
  const RevealedOrder found = reveal_order(kernel.asked, [&](std::span<const SumQuestion> questions) {
    SumAnswers answers;
    for (const SumQuestion& q : questions) {
      std::vector<Tensor> inputs;
      for (NamedTensor& t : kernel.inputs(q)) inputs.push_back(std::move(t.tensor));
      const auto made = nb::cast<Tensor>(call(inputs));
      kernel.expect_output(made);
      answers.dtype = made.dtype();
      answers.elements.push_back(made.values());
    }
    return answers;
  });
  return nb::make_tuple(found.json(), found.text(), found.accumulator_text(), found.order.additions());
}

}  // namespace

void bind_orders(nb::module_& m) {
  m.def("reveal_order", &reveal);
}

}  // namespace assay::python
