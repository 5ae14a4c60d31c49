#include <string>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/collective.h"
#include "assay/operators/engine/order.h"

namespace assay {
namespace {

// Copies a block of `extents` between two C-order tensors, offset in either along one dimension.
struct Box {
  Shape shape;
  std::size_t dim;
  std::int64_t offset;
};
template <class T>
void copy_block(const Shape& extents, const T* from, const Box& source, T* to, const Box& target) {
  const std::int64_t size = element_count(extents);
  for (std::int64_t i = 0; i < size; ++i) {
    std::int64_t rest = i, from_position = 0, to_position = 0, from_stride = 1, to_stride = 1;
    for (std::size_t d = extents.size(); d-- > 0;) {
      const std::int64_t index = rest % extents[d];
      rest /= extents[d];
      from_position += (index + (d == source.dim ? source.offset : 0)) * from_stride;
      to_position += (index + (d == target.dim ? target.offset : 0)) * to_stride;
      from_stride *= source.shape[d];
      to_stride *= target.shape[d];
    }
    to[to_position] = from[from_position];
  }
}

// Even splits give the stacked y; split_sizes, after which ranks hold different amounts, y_0 .. y_(R-1).
struct AllToAll {
  static constexpr std::string_view name = "all_to_all";
  static constexpr std::string_view math =
      "y[s] = chunk s of x[0], .., chunk s of x[R - 1] behind each other";
  static constexpr std::string_view source = "torch.distributed.all_to_all_single";
  static constexpr std::string_view aliases[] = {"torch.distributed.all_to_all_single",
                                                 "AlltoAll",
                                                 "AlltoAllV",
                                                 "ops.AlltoAll",
                                                 "HcclAlltoAll",
                                                 "HcclAlltoAllV"};
  static constexpr Attribute attributes[] = {
      {"split_dim", "0", "the dimension that is cut, of what one rank holds"},
      {"concat_dim", "0", "the dimension along which chunks are put together"},
      {"split_sizes", "null", "R x R extents by rows: what rank r sends to s; null: equal chunks"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "R,S*", .role = Role::input, .domain = everywhere},
      {.name = "y", .shape = "R,O*", .role = Role::output, .exact = Exact::bits},
      {.name = "y_#", .shape = "", .role = Role::output, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"R=4,S=8"}, {"R=3,S=6x4x5", "split_dim=0,concat_dim=-1"}, {"R=2,S=5x3", "split_sizes=[1,4,0,5]"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const Shape own = shape_per_rank(name, x);
    if (own.empty())  // "S*" may be nothing, but not here
      throw Error("all_to_all: x has shape {}; expected [R, ..] with a dimension to cut", to_string(x));
    const std::size_t split = axis(a.integer("split_dim"), own.size());
    const std::size_t concat = axis(a.integer("concat_dim"), own.size());
    const std::int64_t R = x[0];
    Shape result = own;
    if (a.has("split_sizes")) {
      if (split != concat) throw Error("all_to_all: split_sizes go with concat_dim equal to split_dim");
      check_sizes(a.integers("split_sizes"), R, own[split]);
    } else if (own[split] % R != 0) {
      throw Error("all_to_all: {} elements along dim {} cannot be cut into {} equal chunks; give split_sizes",
                  own[split], a.integer("split_dim"), R);
    } else {
      result[split] /= R;
      result[concat] = element_count({result[concat], R});
    }
    d.set("S", own);
    d.set("O", result);
  }

  static void check_sizes(const std::vector<std::int64_t>& sizes, std::int64_t R, std::int64_t extent) {
    if (static_cast<std::int64_t>(sizes.size()) != element_count({R, R}))
      throw Error("all_to_all: split_sizes has {} numbers; expected {} x {}", sizes.size(), R, R);
    for (std::int64_t r = 0; r < R; ++r) {
      std::int64_t sent = 0;
      for (std::int64_t s = 0; s < R; ++s) {
        const std::int64_t size = sizes[static_cast<std::size_t>(r * R + s)];
        if (size < 0 || size > extent)
          throw Error("all_to_all: rank {} sends {} of {} elements to rank {}", r, size, extent, s);
        sent += size;
      }
      if (sent != extent) throw Error("all_to_all: rank {} sends {} elements; it holds {}", r, sent, extent);
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t R = d.at("R");
    const Shape& own = d.extents("S");
    const std::size_t split = axis(a.integer("split_dim"), own.size());
    const std::size_t concat = axis(a.integer("concat_dim"), own.size());
    const bool uneven = a.has("split_sizes");
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(R * R), own[split] / R);
    if (uneven) sizes = a.integers("split_sizes");
    const auto size = [&](std::int64_t r, std::int64_t s) {
      return sizes[static_cast<std::size_t>(r * R + s)];
    };

    const T* x = t["x"].data();
    const std::int64_t held = element_count(own);
    std::vector<std::int64_t> sent(static_cast<std::size_t>(R), 0);
    for (std::int64_t s = 0; s < R; ++s) {
      Shape shape = own;
      shape[split] = size(0, s);
      std::int64_t joined = 0;
      for (std::int64_t r = 0; r < R; ++r) joined += split == concat ? size(r, s) : own[concat];
      shape[concat] = joined;
      std::vector<T> values(static_cast<std::size_t>(element_count(shape)));
      std::int64_t at = 0;
      for (std::int64_t r = 0; r < R; ++r) {
        Shape block = own;
        block[split] = size(r, s);
        std::int64_t& begin = sent[static_cast<std::size_t>(r)];
        copy_block(block, x + r * held, {own, split, begin}, values.data(), {shape, concat, at});
        begin += block[split];
        at += block[concat];
      }
      if (uneven) {
        auto& slot = t.slots()["y_" + std::to_string(s)];
        slot.shape = shape;
        slot.values = std::move(values);
      } else {
        std::copy(values.begin(), values.end(), t["y"].data() + s * static_cast<std::int64_t>(values.size()));
      }
    }
    if (uneven) t.slots().erase("y");
  }
};

}  // namespace

namespace ops {
extern constexpr Operator all_to_all = describe<AllToAll>();
}

}  // namespace assay
