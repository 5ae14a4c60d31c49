#include "assay/operators/engine/reduce.h"

#include "assay/operators/engine/axes.h"

namespace assay {
namespace {

std::vector<bool> reduced_axes(const Shape& x, const Attributes& a, std::string_view attribute) {
  return axes(a.has(attribute) ? a.integers(attribute) : std::vector<std::int64_t>(), x.size());
}

}  // namespace

void bind_reduction(Dims& d, const Shape& x, const Attributes& a, std::string_view attribute) {
  const std::vector<bool> gone = reduced_axes(x, a, attribute);
  Shape left, reduced;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (gone[i]) reduced.push_back(x[i]);
    if (!gone[i] || a.flag("keepdim")) left.push_back(gone[i] ? 1 : x[i]);
  }
  d.set("S", x);
  d.set("R", left);
  d.set("reduced", reduced);
}

void bind_reduction_over_one(Dims& d, const Shape& x, const Attributes& a) {
  if (a.has("dim")) a.integer("dim");
  bind_reduction(d, x, a, "dim");
}

Shape dims_left(const Shape& x, const Attributes& a, std::string_view attribute) {
  Shape dims;
  std::int64_t next = 0;
  for (const bool gone : reduced_axes(x, a, attribute)) {
    dims.push_back(gone ? not_in_result : next);
    next += !gone || a.flag("keepdim") ? 1 : 0;
  }
  return dims;
}

Groups::Groups(const Shape& x, const Attributes& a, std::string_view attribute) {
  std::vector<bool> gone = reduced_axes(x, a, attribute);
  offsets_ = positions(x, gone);
  gone.flip();
  first_ = positions(x, gone);
}

}  // namespace assay
