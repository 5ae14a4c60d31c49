#include "assay/operators/engine/moe_plan.h"

namespace assay {
namespace {

// The way back of moe_dispatch, from the same index: P rows in its order to R ranks of N tokens. In which
// order a token's K rows are added (by expert, within a rank first, within a node first) is the dispatcher's.
struct MoeCombine {
  static constexpr std::string_view name = "moe_combine";
  static constexpr std::string_view math =
      "y_t = sum of probs_tk expert_out_r over the rows r that t K + k was sent to";
  static constexpr std::string_view source =
      "Megatron-LM MoEAlltoAllTokenDispatcher; arXiv:2006.16668 sec. 3.2";
  static constexpr auto attributes = plan_attributes;
  static constexpr Arg args[] = {
      {"expert_out", "P,C", Role::input},
      plan_index,
      plan_placement,
      {.name = "probs", .shape = "R,N,K", .role = Role::input, .low = 0, .high = 1, .optional = true},
      {"grad_y", "R,N,C", Role::grad_output},
      {.name = "y", .shape = "R,N,C", .role = Role::output, .terms = "K"},
      {.name = "send_counts", .shape = "R,R", .role = Role::output_index},     // [from, to]
      {.name = "receive_counts", .shape = "R,R", .role = Role::output_index},  // [to, from]
      {.name = "grad_expert_out", .shape = "P,C", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_probs", .shape = "R,N,K", .role = Role::grad_input, .optional = true, .terms = "C"},
  };
  static constexpr Example examples[] = {
      {"P=12,R=2,N=3,C=4,K=2", "num_experts=6", "placement"},
      {"P=18,R=3,N=2,C=1,K=3,E=4", "num_experts=4,order=\"rank\"", "probs"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr Rows rows = Rows::routed;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_plan(name, d, inputs, a); }

  template <class T>
  static DispatchPlan plan(Tensors<T>& t, const Dims& d, const Attributes& a) {
    return dispatch_plan(t.slot("index").indices, t.optional_index("placement"), d, a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const DispatchPlan there = plan(t, d, a);
    t.slot("send_counts").indices = transposed(there.sent, d.at("R"));
    t.slot("receive_counts").indices = there.sent;
    rows_to_tokens<T>(t["expert_out"].data(), there.rows, t.optional("probs").data(), d.at("R") * d.at("N"),
                      d.at("K"), d.at("C"), t["y"].data());
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    rows_to_tokens_backward<T>(t["expert_out"].data(), plan(t, d, a).rows, t.optional("probs").data(),
                               t["grad_y"].data(), d.at("R") * d.at("N"), d.at("K"), d.at("C"),
                               t["grad_expert_out"].data(), t.optional("grad_probs").data());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_combine = describe<MoeCombine>();
}

}  // namespace assay
