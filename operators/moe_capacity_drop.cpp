#include <algorithm>
#include <cmath>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/router.h"

namespace assay {
namespace {

// N tokens, E experts. An expert keeps `capacity` of the tokens routed to it; weights are not normalised
// again.
struct MoeCapacityDrop {
  static constexpr std::string_view name = "moe_capacity_drop";
  static constexpr std::string_view math =
      "kept_probs = probs of the first capacity tokens of each expert, capacity = ceil(capacity_factor N K / "
      "E), at "
      "most N";
  static constexpr std::string_view source =
      "arXiv:2006.16668 sec. 2.2; Megatron-LM apply_router_token_dropping";
  static constexpr std::string_view aliases[] = {"apply_router_token_dropping"};
  static constexpr Attribute attributes[] = {
      {"top_k", "null", "K: experts of a token"},
      {"capacity_factor", "1", "how much more than its even share an expert takes"},
      {"drop_policy", "\"probs\"",
       "whom an expert keeps: those of the largest probs, or the first by position"},
      {"pad_to_capacity", "false",
       "fill up with the first tokens that were not routed there: in kept_map, with kept_probs 0"}};
  static constexpr Arg args[] = {
      {"probs", "N,E", Role::input, 0, 1},
      {.name = "routing_map", .shape = "N,E", .role = Role::index, .low = 0, .high = 1},
      {"grad_kept_probs", "N,E", Role::grad_output},
      {.name = "kept_probs", .shape = "N,E", .role = Role::output, .exact = Exact::bits},
      {.name = "kept_map", .shape = "N,E", .role = Role::output_index},
      {.name = "capacity", .shape = "", .role = Role::output_index},
      {.name = "grad_probs", .shape = "N,E", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {{"N=7,E=3", "top_k=1"},
                                         {"N=6,E=4", "top_k=2,drop_policy=\"position\",capacity_factor=0.5"},
                                         {"N=5,E=2", "top_k=1,pad_to_capacity=true,capacity_factor=1.5"}};
  static constexpr Rows rows = Rows::together;

  static void bind(Dims&, InputShapes, const Attributes& a) {
    if (!a.has("top_k") || a.integer("top_k") < 1) {
      throw Error("moe_capacity_drop: attribute 'top_k' is missing or below 1");
    }
    if (!(a.real("capacity_factor") >= 0)) {
      throw Error("moe_capacity_drop: capacity_factor is {}; expected 0 or above", a.real("capacity_factor"));
    }
    if (a.text("drop_policy") != "probs" && a.text("drop_policy") != "position") {
      throw Error("moe_capacity_drop: drop_policy is \"{}\"; expected probs or position",
                  a.text("drop_policy"));
    }
  }

  // In double and in this order, as frameworks compute it on the host.
  static std::int64_t capacity(const Dims& d, const Attributes& a) {
    const std::int64_t N = d.at("N"), E = d.at("E");
    const double even = static_cast<double>(N) * a.real("top_k") / static_cast<double>(E);
    const double most = std::ceil(even * a.real("capacity_factor"));
    return most < static_cast<double>(N) ? static_cast<std::int64_t>(most) : N;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto probs = t["probs"], kept = t["kept_probs"];
    const auto map = t.index("routing_map");
    const auto kept_map = t.output_index("kept_map");
    const std::int64_t N = d.at("N"), E = d.at("E"), C = capacity(d, a);
    t.output_index("capacity")() = C;
    for (std::int64_t e = 0; e < E; ++e) {
      std::vector<std::int64_t> queue(static_cast<std::size_t>(N));
      std::iota(queue.begin(), queue.end(), std::int64_t{0});
      if (a.text("drop_policy") == "probs") {
        queue = sorted_positions(N, true, [&](std::int64_t n) -> const T& { return probs(n, e); });
      }
      std::stable_partition(queue.begin(), queue.end(), [&](std::int64_t n) { return map(n, e) != 0; });
      for (std::int64_t i = 0; i < C; ++i) {
        const std::int64_t n = queue[static_cast<std::size_t>(i)];
        const bool routed = map(n, e) != 0;
        kept_map(n, e) = routed || a.flag("pad_to_capacity") ? 1 : 0;
        if (routed) kept(n, e) = probs(n, e);
      }
    }
  }

  // What was dropped or only filled up has no gradient.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto g = t["grad_kept_probs"], grad = t["grad_probs"];
    const auto map = t.index("routing_map");
    const auto kept_map = t.output_index("kept_map");
    for (std::int64_t n = 0; n < d.at("N"); ++n) {
      for (std::int64_t e = 0; e < d.at("E"); ++e) {
        if (kept_map(n, e) != 0 && map(n, e) != 0) grad(n, e) = g(n, e);
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_capacity_drop = describe<MoeCapacityDrop>();
}

}  // namespace assay
