#include <algorithm>
#include <string>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

struct Split {
  static constexpr std::string_view name = "split";
  static constexpr std::string_view math = "y_0, y_1, .. are x cut along dim";
  static constexpr std::string_view source = "torch.split";
  static constexpr std::string_view aliases[] = {"torch.split", "torch.split_with_sizes", "split_with_sizes",
                                                 "SplitTensor", "Split"};
  static constexpr Attribute attributes[] = {
      {"split_size", "null", "extent of every piece; the last may be smaller"},
      {"sections", "null", "instead: the extents of the pieces, whose sum is that of x"},
      {"dim", "0", "the dimension that is cut"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "X*", .role = Role::input, .domain = everywhere},
      {.name = "grad_y_#", .shape = "Y*", .role = Role::grad_output, .domain = everywhere},
      {.name = "y_#", .shape = "Y*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x", .shape = "X*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"X=7x2,grad_y_0=3x2,grad_y_1=3x2,grad_y_2=1x2", "split_size=3"},
      {"X=2x6,grad_y_0=2x1,grad_y_1=2x0,grad_y_2=2x5", "sections=[1,0,5],dim=-1"},
      {"X=4", "split_size=9"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static std::string member(std::string_view list, std::size_t k) {
    return std::string(list) + std::to_string(k);
  }

  // An x of extent 0 is one piece, as torch has it.
  static std::vector<Shape> pieces(const Shape& x, const Attributes& a) {
    if (x.empty()) throw Error("split: x is a scalar; expected at least one dimension");
    if (a.has("split_size") == a.has("sections"))
      throw Error("split: expected one of split_size and sections");
    const std::size_t along = axis(a.integer("dim"), x.size());
    const std::int64_t extent = x[along];
    std::vector<Shape> all;
    const auto add = [&](std::int64_t length) { (all.emplace_back(x))[along] = length; };
    if (a.has("sections")) {
      std::int64_t rest = extent;
      for (const std::int64_t length : a.integers("sections")) {
        if (length < 0 || length > rest) {
          rest = -1;
          break;
        }
        add(length);
        rest -= length;
      }
      if (rest != 0)
        throw Error("split: sections are {}; expected extents whose sum is {}",
                    to_string(a.integers("sections")), extent);
      return all;
    }
    const std::int64_t size = a.integer("split_size");
    if (size < 0 || (size == 0 && extent > 0))
      throw Error("split: split_size is {}; expected 1 or more", size);
    std::int64_t start = 0;
    do {
      add(std::min(size, extent - start));
      start += size;
    } while (start < extent);
    return all;
  }

  // Gradients are of the pieces: all or none, each of its shape.
  static void bind(Dims&, InputShapes inputs, const Attributes& a) {
    const std::vector<Shape> all = pieces(shape_of_input(inputs, "x"), a);
    std::size_t gradients = 0;
    for (const InputShape& input : inputs) {
      if (!input.name.starts_with("grad_y_")) continue;
      ++gradients;
      for (std::size_t k = 0; k < all.size(); ++k) {
        if (input.name == member("grad_y_", k) && input.shape != all[k]) {
          throw Error("split: {} has shape {}; expected {}", input.name, to_string(input.shape),
                      to_string(all[k]));
        }
      }
    }
    if (gradients != 0 && gradients != all.size())
      throw Error("split: {} gradients are given; expected one for each of {} pieces", gradients, all.size());
  }

  // Calls f(k, shape of y_k, where it lies in x).
  template <class F>
  static void for_each_piece(const Dims& d, const Attributes& a, F f) {
    const Shape& x = d.extents("X");
    const std::vector<Shape> all = pieces(x, a);
    const std::size_t along = axis(a.integer("dim"), x.size());
    std::int64_t start = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      f(k, all[k], box_positions(x, along, start, all[k]));
      start += all[k][along];
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    for_each_piece(d, a, [&](std::size_t k, const Shape& shape, const Positions& at) {
      auto& y = t.slots()[member("y_", k)];
      y.shape = shape;
      y.values.resize(at.size(), T(0));
      copy_forward(t.slot("x").values, at, y.values);
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    std::vector<T>& grad_x = t.slot("grad_x").values;
    for_each_piece(d, a, [&](std::size_t k, const Shape&, const Positions& at) {
      const std::vector<T>& g = t.slot(member("grad_y_", k)).values;
      for (std::size_t i = 0; i < g.size(); ++i) grad_x[static_cast<std::size_t>(at[i])] = g[i];
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator split = describe<Split>();
}

}  // namespace assay
