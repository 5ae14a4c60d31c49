#include "assay/operators/engine/collective.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {

Shape shape_per_rank(std::string_view op, const Shape& x) {
  if (x[0] < 1) {
    throw Error("{}: x has shape {}; expected [R, ..], what each of R ranks holds", op, to_string(x));
  }
  return {x.begin() + 1, x.end()};
}

void bind_rank_reduction(Dims& d, std::string_view op, std::int64_t ranks, const Attributes& a) {
  const auto one_of = [&](std::string_view attribute, std::initializer_list<std::string_view> values) {
    const std::string& given = a.text(attribute);
    if (std::ranges::find(values, given) != values.end()) return;
    std::string list;
    for (const std::string_view v : values) list += (list.empty() ? "" : ", ") + std::string(v);
    throw Error("{}: {} is \"{}\"; expected one of {}", op, attribute, given, list);
  };
  one_of("reduce", {"sum", "avg", "prod", "max", "min"});
  if (a.has("order")) one_of("order", {"rank", "ring", "tree", "exact"});
  const bool exact = a.has("order") && a.text("order") == "exact";
  const bool tree = a.has("order") && a.text("order") == "tree";
  if (exact && a.text("reduce") == "prod")
    throw Error("{}: the order exact is one of sums, not of products", op);
  std::int64_t chain = ranks;
  if (tree) {  // ceil(log2 R)
    for (chain = 0; (std::int64_t{1} << chain) < ranks;) ++chain;
  }
  if (exact || a.text("reduce") == "max" || a.text("reduce") == "min") chain = 1;
  d.set("chain", std::max<std::int64_t>(chain, 1));
}

}  // namespace assay
