#include "assay/operators/engine/extremum.h"

namespace assay {

void bind_extremum(Dims& d, const Shape& x, const Attributes& a, std::string_view op, bool over_one) {
  if (over_one)
    bind_reduction_over_one(d, x, a);
  else
    bind_reduction(d, x, a, "dim");
  if (d.at("reduced") == 0 && d.at("R") > 0) {
    throw Error("{}: x has shape {}; there is nothing to choose from along an extent of 0", op, to_string(x));
  }
}

void bind_ties(Dims& d, const Shape& x, const Attributes& a, std::string_view op) {
  const std::string& ties = a.text("ties");
  if (ties != "index" && ties != "even") throw Error("{}: ties is \"{}\"; expected index or even", op, ties);
  bind_extremum(d, x, a, op, ties == "index");
}

}  // namespace assay
