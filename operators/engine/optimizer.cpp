#include "assay/operators/engine/optimizer.h"

#include "assay/golden/error.h"

namespace assay {

void bind_steps(Dims& d, std::string_view op, InputShapes inputs, const Attributes& a) {
  d.set("S", shape_of_input(inputs, "param"));
  const Shape& grads = shape_of_input(inputs, "grads");
  const std::int64_t steps = grads.empty() ? 0 : grads[0];
  if (a.has("steps") && a.integer("steps") != steps) {
    throw Error("{}: steps is {}; grads has shape {}: one gradient per step", op, a.integer("steps"),
                to_string(grads));
  }
}

}  // namespace assay
