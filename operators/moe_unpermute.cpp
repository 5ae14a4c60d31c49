#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/moe_rows.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// P rows of C channels back to N* tokens of K choices. "places": N K.
struct MoeUnpermute {
  static constexpr std::string_view name = "moe_unpermute";
  static constexpr std::string_view math =
      "y_t = sum of probs_tk expert_out_r over the rows r with sorted_index_r = t K + k";
  static constexpr std::string_view source =
      "Megatron-LM moe_utils unpermute; torch_npu npu_moe_token_unpermute";
  static constexpr std::string_view aliases[] = {"npu_moe_token_unpermute", "MoeTokenUnpermute"};
  static constexpr Attribute attributes[] = {
      {"top_k", "null", "K; null: the last extent of probs"},
      {"num_tokens", "null", "N, where probs are not given; null: P / K"},
      {"dropped", "-1", "the sorted_index of a padding row, which goes nowhere"}};
  static constexpr Arg args[] = {
      {"expert_out", "P,C", Role::input},
      {.name = "sorted_index", .shape = "P", .role = Role::index, .indexes = "places", .except = "dropped"},
      {.name = "probs", .shape = "N*,K", .role = Role::input, .low = 0, .high = 1, .optional = true},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "K"},
      {.name = "grad_expert_out", .shape = "P,C", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_probs", .shape = "N*,K", .role = Role::grad_input, .optional = true, .terms = "C"},
  };
  static constexpr Example examples[] = {{"P=8,C=3,N=4,K=2"},
                                         {"P=7,C=2,N=2x3,K=3", "top_k=3"},
                                         {"P=6,C=5", "top_k=2", "probs"},
                                         {"P=5,C=2", "top_k=2,num_tokens=4", "probs"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true;
  static constexpr std::string_view linear_in = "expert_out";
  static constexpr Shares takes_shares = Shares::of_all;
  static constexpr RecordedAs recorded_as[] = {{"sorted_index", "sorted_index", made_around}};
  static constexpr Rows rows = Rows::routed;
  static constexpr SameAxis same_axis[] = {{"P", "N"}};

  // Rows that were weighted before come without probs: the place of a row is t K + k.
  static void infer(Recorded& call) {
    const Tensor *sorted = call.index("sorted_index"), *grad_y = call.input("grad_y");
    const Shape& tokens = grad_y != nullptr ? grad_y->shape() : call.result.shape();
    if (call.input("probs") != nullptr || sorted == nullptr || sorted->size() == 0) return;
    if (tokens.empty() || tokens.front() == 0) return;
    const std::int64_t N = tokens.front(), last = std::ranges::max(sorted->indices()) / N;
    call.attributes.set("num_tokens", static_cast<double>(N));
    call.attributes.set("top_k", static_cast<double>(last) + 1);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const InputShape* probs = find_input(inputs, "probs");
    if (a.integer("dropped") >= 0)
      throw Error("moe_unpermute: dropped is {}; expected below 0", a.integer("dropped"));
    if (probs != nullptr) {
      const Shape& shape = probs->shape;
      if (a.has("top_k") && a.integer("top_k") != shape.back()) {
        throw Error("moe_unpermute: probs have shape {}; expected [N, K] with K = top_k", to_string(shape));
      }
      d.set("N", Shape(shape.begin(), shape.end() - 1));
      d.set("K", shape.back());
      d.set("places", element_count(shape));
      return;
    }
    if (!a.has("top_k") || a.integer("top_k") < 1)
      throw Error("moe_unpermute: without probs, top_k must be given, 1 or above");
    const Shape& sorted = shape_of_input(inputs, "sorted_index");
    const std::int64_t P = element_count(sorted), K = a.integer("top_k");
    if (!a.has("num_tokens") && P % K != 0) {
      throw Error("moe_unpermute: {} rows are no whole tokens of {}; num_tokens or probs must say how many",
                  P, K);
    }
    const std::int64_t N = a.has("num_tokens") ? a.integer("num_tokens") : P / K;
    if (N < 0) throw Error("moe_unpermute: num_tokens is {}", N);
    d.set("N", N);
    d.set("K", K);
    d.set("places", element_count({N, K}));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    rows_to_tokens<T>(t["expert_out"].data(), t.slot("sorted_index").indices, t.optional("probs").data(),
                      d.at("N"), d.at("K"), d.at("C"), t["y"].data());
  }

  // grad_expert_out_r = p grad_y_t, grad_probs_tk = sum_c expert_out_r grad_y_t
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    rows_to_tokens_backward<T>(t["expert_out"].data(), t.slot("sorted_index").indices,
                               t.optional("probs").data(), t["grad_y"].data(), d.at("N"), d.at("K"),
                               d.at("C"), t["grad_expert_out"].data(), t.optional("grad_probs").data());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_unpermute = describe<MoeUnpermute>();
}

}  // namespace assay
