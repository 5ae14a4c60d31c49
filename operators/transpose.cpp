#include <algorithm>
#include <numeric>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

struct Transpose : Copy<Transpose> {
  static constexpr std::string_view name = "transpose";
  static constexpr std::string_view math = "y(.., i_perm[1], i_perm[2], ..) = x(i_0, i_1, i_2, ..)";
  static constexpr std::string_view source = "torch.permute, torch.transpose";
  static constexpr std::string_view aliases[] = {"torch.permute", "torch.transpose", "permute",
                                                 "npu_transpose", "Transpose"};
  static constexpr Attribute attributes[] = {
      {"perm", "null", "dimension d of y is perm[d] of x; null: all of them in reverse"},
      {"dim0", "null", "instead of perm: two dimensions that change places"},
      {"dim1", "null", "the other one"}};
  static constexpr Example examples[] = {
      {"X=3x5x4", "perm=[2,0,1]"}, {"X=2x3x4", "dim0=0,dim1=-1"}, {"X=6x7"}, {"X=5"}};
  static constexpr Shares takes_shares = Shares::of_all;

  // Which dimension of x each one of y is.
  static std::vector<std::size_t> permutation(std::size_t rank, const Attributes& a) {
    std::vector<std::size_t> perm(rank);
    std::iota(perm.begin(), perm.end(), std::size_t{0});
    if (a.has("dim0") != a.has("dim1")) throw Error("transpose: one of dim0 and dim1 is missing");
    if (a.has("perm") && a.has("dim0"))
      throw Error("transpose: perm and dim0, dim1 are given; expected one of them");
    if (a.has("dim0")) {
      const std::size_t first = axis(a.integer("dim0"), rank), second = axis(a.integer("dim1"), rank);
      if (rank > 0) std::swap(perm[first], perm[second]);
    } else if (a.has("perm")) {
      const std::vector<std::int64_t> dims = a.integers("perm");
      if (dims.size() != rank)
        throw Error("transpose: perm names {} dimensions; expected all {} of x", dims.size(), rank);
      axes(dims, rank);  // none twice
      std::ranges::transform(dims, perm.begin(), [&](std::int64_t dim) { return axis(dim, rank); });
    } else {
      std::ranges::reverse(perm);
    }
    return perm;
  }

  static Shape dims_in_result(const Shape& x, const Shape&, const Attributes& a) {
    const std::vector<std::size_t> perm = permutation(x.size(), a);
    Shape dims(x.size());
    for (std::size_t d = 0; d < perm.size(); ++d) dims[perm[d]] = static_cast<std::int64_t>(d);
    return dims;
  }

  static Shape shape(const Shape& x, const Attributes& a) {
    Shape y;
    for (const std::size_t d : permutation(x.size(), a)) y.push_back(x[d]);
    return y;
  }
  static Positions from(const Shape& x, const Shape& y, const Attributes& a) {
    const std::vector<std::size_t> perm = permutation(x.size(), a);
    const Shape stride = strides_of(x);
    return positions_of(y, [&](std::size_t d, std::int64_t i) { return i * stride[perm[d]]; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator transpose = describe<Transpose>();
}

}  // namespace assay
