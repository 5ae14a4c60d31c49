#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/order.h"

namespace assay {
namespace {

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind; K* of its elements are kept.
struct TopK {
  static constexpr std::string_view name = "top_k";
  static constexpr std::string_view math = "y = the k largest of x along dim, index = where they are";
  static constexpr std::string_view source =
      "torch.topk; of equal elements the lower index first, unless another was chosen";
  static constexpr std::string_view aliases[] = {"torch.topk", "topk", "TopK", "TopkExt", "ops.topk"};
  static constexpr Attribute attributes[] = {
      {"k", "null", "how many"},
      {"dim", "-1", "the dimension that is searched"},
      {"largest", "true", "false: the k smallest"},
      {"sorted", "true", "false promises no order; golden's is sorted all the same"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "A*,C*,B*", .role = Role::input, .domain = everywhere},
      {.name = "chosen", .shape = "A*,K*,B*", .role = Role::index, .optional = true, .indexes = "C"},
      {"grad_y", "A*,K*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,K*,B*", .role = Role::output, .exact = Exact::value},
      {"index", "A*,K*,B*", Role::output_index},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .exact = Exact::value},
  };
  // The smallest of all: a NaN is among them.
  static constexpr Example examples[] = {{"A=4,C=9,B=", "k=3", "chosen"},
                                         {"A=2,C=5,B=3", "k=2,dim=1", "chosen"},
                                         {"A=3,C=4,B=", "k=4,largest=false", "chosen"}};
  static constexpr RecordedAs recorded_as[] = {{"chosen", "index", made_around}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    bind_axis(d, x, a.integer("dim"));
    if (!a.has("k")) throw Error("top_k: attribute 'k' is missing; expected how many elements to keep");
    const std::int64_t k = a.integer("k");
    if (k < (x.empty() ? 1 : 0) || k > d.at("C")) {
      throw Error("top_k: k is {}; the dimension has {} elements", k, d.at("C"));
    }
    d.set("K", x.empty() ? Shape() : Shape{k});
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    order_forward(t, d, a.flag("largest"));
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    order_backward(t, d);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator top_k = describe<TopK>();
}

}  // namespace assay
