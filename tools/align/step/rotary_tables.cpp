#include "assay/align/step/rotary_tables.h"

#include <vector>

#include "assay/align/arithmetic/arithmetic.h"

namespace assay::align {

// Rope makes (cos, sin) of the pair (1, 0).
std::array<Tensor, 2> rotary_tables(const Attributes& of_rope, std::int64_t length, std::int64_t size,
                                    DType dtype) {
  const bool interleaved = of_rope.text("style") == "interleaved";
  const std::int64_t pairs = size / 2, step = interleaved ? 2 : 1, second = interleaved ? 1 : pairs;
  std::vector<double> ones(static_cast<std::size_t>(length * size));
  for (std::int64_t l = 0; l < length; ++l) {
    for (std::int64_t p = 0; p < pairs; ++p) ones[static_cast<std::size_t>(l * size + p * step)] = 1;
  }
  const std::vector<NamedTensor> given = {{"x", Tensor({1, 1, length, size}, std::span<const double>(ones))}};
  const auto in = arithmetic(Precision::fp64);
  const std::vector<double> turned =
      in->close(in->compute("", find_operator("rope"), given, of_rope).front().tensor).values();
  std::array<Tensor, 2> tables;
  for (const std::int64_t which : {0, 1}) {
    std::vector<double> values;
    for (std::int64_t l = 0; l < length; ++l) {
      for (std::int64_t c = 0; c < size; ++c)
        values.push_back(turned[static_cast<std::size_t>(l * size + c % pairs * step + which * second)]);
    }
    tables[static_cast<std::size_t>(which)] = Tensor::from_values(dtype, {1, length, size}, values);
  }
  return tables;
}

}  // namespace assay::align
