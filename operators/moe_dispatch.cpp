#include "assay/operators/engine/moe_plan.h"

namespace assay {
namespace {

// R ranks, each with N tokens of C channels and K choices; P: the rows of all ranks together.
struct MoeDispatch {
  static constexpr std::string_view name = "moe_dispatch";
  static constexpr std::string_view math =
      "received_r = x[source_r / K], source: the places of index (token K + choice) by the rank of their "
      "expert";
  static constexpr std::string_view source =
      "Megatron-LM MoEAlltoAllTokenDispatcher; arXiv:2006.16668 sec. 3.2";
  static constexpr auto attributes = plan_attributes;
  static constexpr Arg args[] = {
      {"x", "R,N,C", Role::input},
      plan_index,
      plan_placement,
      {"grad_received", "P,C", Role::grad_output},
      {.name = "received", .shape = "P,C", .role = Role::output, .exact = Exact::bits},
      {.name = "source", .shape = "P", .role = Role::output_index},
      {.name = "send_counts", .shape = "R,R", .role = Role::output_index},     // [from, to]
      {.name = "receive_counts", .shape = "R,R", .role = Role::output_index},  // [to, from]
      {.name = "tokens_per_expert", .shape = "E", .role = Role::output_index},
      {.name = "grad_x", .shape = "R,N,C", .role = Role::grad_input, .terms = "K"},
  };
  static constexpr Example examples[] = {{"R=2,N=3,C=4,K=2", "num_experts=6", "placement"},
                                         {"R=3,N=2,C=1,K=3,E=4", "num_experts=4,order=\"rank\""}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr Rows rows = Rows::routed;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_plan(name, d, inputs, a); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::vector<std::int64_t>& index = t.slot("index").indices;
    const DispatchPlan plan = dispatch_plan(index, t.optional_index("placement"), d, a);
    t.slot("source").indices = plan.rows;
    t.slot("send_counts").indices = plan.sent;
    t.slot("receive_counts").indices = transposed(plan.sent, d.at("R"));
    for (const std::int64_t place : plan.rows) {
      if (place >= 0) ++t.output_index("tokens_per_expert")(index[static_cast<std::size_t>(place)]);
    }
    tokens_to_rows(t["x"].data(), plan.rows, d.at("K"), d.at("C"), t["received"].data());
  }

  // The rows come back to their tokens and are added up: a combine without probabilities.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const T* const no_probs = nullptr;
    rows_to_tokens<T>(t["grad_received"].data(), t.slot("source").indices, no_probs, d.at("R") * d.at("N"),
                      d.at("K"), d.at("C"), t["grad_x"].data());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_dispatch = describe<MoeDispatch>();
}

}  // namespace assay
