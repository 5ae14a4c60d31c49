#include <vector>

#include "assay/operators/engine/grouped_matmul.h"
#include "assay/operators/engine/moe_rows.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// T rows of C channels, which lie expert by expert, and experts with I channels inside.
struct GroupedExperts {
  static constexpr std::string_view name = "grouped_experts";
  static constexpr std::string_view math =
      "y_t = down_e (silu(gate_e x_t) up_e x_t) for the rows t of expert e: group_sizes[0], then "
      "group_sizes[1], ..";
  static constexpr std::string_view source =
      "torchtitan GroupedExperts; gated units arXiv:2002.05202 eq. 6; MegaBlocks arXiv:2211.15841 sec. 2.3";
  static constexpr std::string_view aliases[] = {"GroupedExperts"};
  static constexpr Arg args[] = {
      {"x", "T,C", Role::input},
      {.name = "group_sizes", .shape = "E", .role = Role::index, .sums_to = "T"},
      {"gate", "E,I,C", Role::param},
      {"down", "E,C,I", Role::param},
      {"up", "E,I,C", Role::param},
      {"grad_y", "T,C", Role::grad_output},
      {.name = "y", .shape = "T,C", .role = Role::output, .terms = "C + I"},
      {.name = "grad_x", .shape = "T,C", .role = Role::grad_input, .terms = "C + C + I + I"},
      {.name = "grad_gate", .shape = "E,I,C", .role = Role::grad_input, .terms = "C + C + T"},
      {.name = "grad_down", .shape = "E,C,I", .role = Role::grad_input, .terms = "C + T"},
      {.name = "grad_up", .shape = "E,I,C", .role = Role::grad_input, .terms = "C + C + T"},
  };
  static constexpr Example examples[] = {{"T=8,C=4,E=3,I=3"}, {"T=5,C=3,E=4,I=2"}};
  static constexpr RecordedAs recorded_as[] = {
      {"x", "x_RD"},    {"group_sizes", "num_tokens_per_expert_E"}, {"gate", "w1_EFD"}, {"down", "w2_EDF"},
      {"up", "w3_EFD"}, {"group_sizes", "num_tokens_per_expert"},   {"gate", "w1"},     {"down", "w2"},
      {"up", "w3"}};
  static constexpr Rows rows = Rows::routed;
  static constexpr SameAxis same_axis[] = {{"E", "T"}};
  static constexpr bool shares_steps = true;

  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims&,
                                               const Attributes&) {
    return apart_by_token_or_expert(output, shape);
  }

  // What kernels store between the products.
  template <class T>
  struct Steps {
    Steps(Tensors<T>& t, const Dims& d)
        : size(d.at("T") * d.at("I")),
          into{d.at("C"), d.at("I"), true, t.slot("group_sizes").indices},
          out_of{d.at("I"), d.at("C"), true, t.slot("group_sizes").indices},
          gate(product(t, "gate")),
          up(product(t, "up")),
          unit(gate),
          gated(gate) {
      for (std::size_t i = 0; i < gate.size(); ++i) {
        unit[i] = stored(silu(gate[i]));
        gated[i] = stored(unit[i] * up[i]);
      }
    }
    std::vector<T> product(Tensors<T>& t, const char* weight) const {
      std::vector<T> y(static_cast<std::size_t>(size));
      into.forward(t["x"].data(), t[weight].data(), y.data());
      for (T& v : y) v = stored(v);
      return y;
    }
    std::int64_t size;
    GroupedMatMulOf<T> into, out_of;  // of the experts' channels
    std::vector<T> gate, up, unit, gated;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    if (!t.wants("y")) return;
    const Steps<T> s(t, d);
    s.out_of.forward(s.gated.data(), t["down"].data(), t["y"].data());
  }

  // With g = down^T grad_y: grad_up = g silu(gate), grad_gate = g up silu'(gate).
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const Steps<T> s(t, d);
    const auto wanted = [&](const char* grad) { return t.wants(grad) ? t[grad].data() : nullptr; };
    std::vector<T> of_gated(s.gate.size()), of_gate(s.gate.size()), of_up(s.gate.size());
    s.out_of.backward(s.gated.data(), t["down"].data(), t["grad_y"].data(), of_gated.data(),
                      wanted("grad_down"));
    for (std::size_t i = 0; i < of_gated.size(); ++i) {
      const T g = stored(of_gated[i]);
      of_up[i] = stored(g * s.unit[i]);
      of_gate[i] = stored(stored(g * s.up[i]) * silu_slope(s.gate[i]));
    }
    const std::int64_t n = t.wants("grad_x") ? d.at("T") * d.at("C") : 0;
    std::vector<T> by_gate(static_cast<std::size_t>(n)), by_up(static_cast<std::size_t>(n));
    const auto data = [](std::vector<T>& v) { return v.empty() ? nullptr : v.data(); };
    s.into.backward(t["x"].data(), t["gate"].data(), of_gate.data(), data(by_gate), wanted("grad_gate"));
    s.into.backward(t["x"].data(), t["up"].data(), of_up.data(), data(by_up), wanted("grad_up"));
    for (std::int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<std::size_t>(i);
      t["grad_x"].data()[i] = stored(by_gate[k]) + stored(by_up[k]);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator grouped_experts = describe<GroupedExperts>();
}

}  // namespace assay
