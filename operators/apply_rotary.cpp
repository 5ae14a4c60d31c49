#include <algorithm>
#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"

namespace assay {
namespace {

// B sequences of L tokens with the channels X* of all heads, side by side or by head; Y*: the same elements,
// by layout. D: the channels of a head, of which the first R turn, by the first L rows of tables [B, M, C],
// or [M, C] for all sequences alike, with extents of 1 anywhere in T*. C is R, or R/2 where a pair has one
// column.
struct ApplyRotary {
  static constexpr std::string_view name = "apply_rotary";
  static constexpr std::string_view math = "y = x cos + swap(x) sin; swap(x) = (-x_j, x_i) in each pair";
  static constexpr std::string_view source =
      "arXiv:2104.09864 eq. 34; Hugging Face transformers apply_rotary_pos_emb";
  static constexpr Attribute attributes[] = {
      {"head_dim", "null", "D; null: R"},
      {"layout", "\"heads_first\"",
       "y is [B, heads, L, D], or heads_last: [B, L, heads, D], or same: the shape of x"},
      {"style", "\"half\"",
       "pairs are half: (i, i + R/2), or interleaved: (2i, 2i + 1), or by_pair: those of interleaved, pair i "
       "by column i of the tables; half_of_pairs and interleaved_of_pairs: tables have a column for each "
       "pair, R/2"}};
  static constexpr Arg args[] = {
      {"x", "B,L,X*", Role::input},
      {.name = "cos", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1},
      {.name = "sin", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1},
      {"grad_y", "Y*", Role::grad_output},
      {.name = "y", .shape = "Y*", .role = Role::output, .terms = "2"},
      {.name = "grad_x", .shape = "B,L,X*", .role = Role::grad_input, .terms = "2"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=3,X=8,T=3,C=4", ""},
      {"B=2,L=3,X=2x6,T=2x4,C=2", "head_dim=6,style=\"interleaved_of_pairs\",layout=\"heads_last\""},
      {"B=1,L=4,X=12,T=1x5x1,C=4", "head_dim=6,style=\"by_pair\",layout=\"same\""}};
  static constexpr std::string_view functional_inputs[] = {"x", "cos", "sin"};
  static constexpr bool shares_steps = true;
  static constexpr Seen seen[] = {
      {"style", "\"interleaved\"", "Cohere, GPT-J"},
      {"style", "\"by_pair\"", "ERNIE 4.5, GLM-4"},
      {"style", "\"half_of_pairs\"", "FlashAttention's rotary"},
      {"style", "\"interleaved_of_pairs\"", "its other one, Llama in real numbers"}};
  static constexpr Seen mistaken[] = {{"style", "\"half\"", "pairs of another layout"},
                                      {"style", "\"by_pair\"", "neighbours by the tables of halves"}};

  // By heads behind the tokens, or tokens behind the heads.
  static std::string_view layout_of(const Shape& x, const Shape& y) {
    if (x == y) return "same";
    return y.size() == 4 && y[2] == x[1] ? "heads_first" : "heads_last";
  }
  static void infer(Recorded& call) {
    const Tensor *x = call.input("x"), *grad_y = call.input("grad_y");
    const Shape& y = grad_y != nullptr ? grad_y->shape() : call.result.shape();
    if (x == nullptr || x->shape().size() < 3 || y.empty()) return;
    call.attributes.set("layout", std::string(layout_of(x->shape(), y)));
    if (y.size() == 4) call.attributes.set("head_dim", static_cast<double>(y.back()));
  }
  static bool may_make(InputShapes inputs, const Shape& y) {
    const Shape& x = shape_of_input(inputs, "x");
    if (x.size() < 3 || element_count(x) != element_count(y)) return false;
    const std::string_view layout = layout_of(x, y);
    return y[0] == x[0] && (layout != "heads_last" || (y.size() == 4 && y[1] == x[1]));
  }
  static bool goes_with(InputShapes before, const InputShape& next) {
    return goes_with_tokens("x", before, next);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    if (x.size() < 3) throw Error("apply_rotary: x has shape {}; expected [B, L, ..]", to_string(x));
    const std::int64_t R = bind_tables(d, name, inputs, x[0], x[1], a);
    const std::int64_t D = a.has("head_dim") ? a.integer("head_dim") : R, all = channels_of(x);
    if (D < 1 || D < R || all % D != 0)
      throw Error("apply_rotary: x has {} channels, of which {} of {} turn in a head; expected whole heads",
                  all, R, D);
    const std::string& layout = a.text("layout");
    if (layout == "heads_first")
      d.set("Y", Shape{x[0], all / D, x[1], D});
    else if (layout == "heads_last")
      d.set("Y", Shape{x[0], x[1], all / D, D});
    else if (layout == "same")
      d.set("Y", x);
    else
      throw Error("apply_rotary: layout is \"{}\"; expected heads_first, heads_last or same", layout);
    d.set("D", D);
    d.set("heads", all / D);
  }

  template <class T>
  static void turn(Tensors<T>& t, const Dims& d, const Attributes& a, bool back) {
    const std::int64_t H = d.at("heads"), D = d.at("D");
    const bool heads_first = a.text("layout") == "heads_first";
    const View<T> from = t[back ? "grad_y" : "x"], to = t[back ? "grad_x" : "y"];
    const bool is_by_head = back && heads_first, is_wanted_by_head = !back && heads_first;
    const std::int64_t size = d.at("B") * d.at("L") * H * D;
    const std::vector<T> x =
        is_by_head ? std::vector<T>(from.data(), from.data() + size) : by_head(from.data(), d, H, D, false);
    const std::vector<T> y = turned(x, t, d, turn_of(d, a), H, back);
    std::ranges::copy(is_wanted_by_head ? y : by_head(y.data(), d, H, D, true), to.data());
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    turn(t, d, a, false);
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    turn(t, d, a, true);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator apply_rotary = describe<ApplyRotary>();
}

}  // namespace assay
