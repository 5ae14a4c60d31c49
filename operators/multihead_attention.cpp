#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/multihead_attention.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// L queries, S keys of B* sequences, or of one that has no dimension of its own; E, K and V channels in
// query, key and value. P = 3E: those of q, then k, then v. M*, A*: [L, S] for all heads, or [B H, L, S]. A
// tensor that stands for several of query, key and value is given once.
struct MultiheadAttention {
  static constexpr std::string_view name = "multihead_attention";
  static constexpr std::string_view math =
      "attn_output = concat_h(attention(q_h, k_h, v_h)) w_out^T + b_out; q = query w_q^T + b_q, k = key "
      "w_k^T "
      "+ b_k, v = value w_v^T + b_v; attn_output_weights: the softmax";
  static constexpr std::string_view source =
      "arXiv:1706.03762 sec. 3.2.2; torch.nn.functional.multi_head_attention_forward";
  static constexpr std::string_view aliases[] = {"torch.nn.MultiheadAttention",
                                                 "torch.nn.functional.multi_head_attention_forward"};
  static constexpr Attribute attributes[] = {
      {"num_heads", "null", "H: heads of E / H channels each"},
      {"batch_first", "false", "tensors are [B, L, E], else [L, B, E]"},
      {"is_causal", "false", "a query does not see the keys behind it, whatever masks say"},
      {"average_attn_weights", "true",
       "attn_output_weights are [B, L, S], the mean of all heads', else [B, H, L, S]"},
      {"scale", "null", "factor of q; null: 1 / sqrt(E / H)"}};
  static constexpr Domain of_bias = {-std::numeric_limits<double>::infinity(), 0x1p63};  // -inf: hidden
  static constexpr Arg args[] = {
      {"query", "L,B*,E", Role::input},
      {.name = "key", .shape = "S,B*,K", .role = Role::input, .optional = true},
      {.name = "value", .shape = "S,B*,V", .role = Role::input, .optional = true},
      {.name = "in_proj_weight",
       .shape = "P,E",
       .role = Role::param,
       .low = -.5,
       .high = .5,
       .optional = true},
      {.name = "q_proj_weight",
       .shape = "E,E",
       .role = Role::param,
       .low = -.5,
       .high = .5,
       .optional = true},
      {.name = "k_proj_weight",
       .shape = "E,K",
       .role = Role::param,
       .low = -.5,
       .high = .5,
       .optional = true},
      {.name = "v_proj_weight",
       .shape = "E,V",
       .role = Role::param,
       .low = -.5,
       .high = .5,
       .optional = true},
      {.name = "in_proj_bias", .shape = "P", .role = Role::param, .low = -.5, .high = .5, .optional = true},
      {"out_proj_weight", "E,E", Role::param, -.5, .5},
      {.name = "out_proj_bias", .shape = "E", .role = Role::param, .low = -.5, .high = .5, .optional = true},
      {.name = "attn_mask", .shape = "M*", .role = Role::index, .low = 0, .high = 1, .optional = true},
      {.name = "attn_bias", .shape = "A*", .role = Role::input, .optional = true, .domain = of_bias},
      {.name = "key_padding_mask",
       .shape = "B*,S",
       .role = Role::index,
       .low = 0,
       .high = 1,
       .optional = true},
      {.name = "key_padding_bias", .shape = "B*,S", .role = Role::input, .optional = true, .domain = of_bias},
      {"grad_attn_output", "L,B*,E", Role::grad_output},
      {.name = "grad_attn_output_weights", .shape = "B*,L,S", .role = Role::grad_output, .optional = true},
      {.name = "attn_output", .shape = "L,B*,E", .role = Role::output, .terms = "in + D + S + E"},
      {.name = "attn_output_weights", .shape = "B*,L,S", .role = Role::output, .terms = "in + D + S + H"},
      {.name = "grad_query", .shape = "L,B*,E", .role = Role::grad_input, .terms = "in + E + D + rows + in"},
      {.name = "grad_key",
       .shape = "S,B*,K",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + rows + in"},
      {.name = "grad_value",
       .shape = "S,B*,V",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + rows + E"},
      {.name = "grad_in_proj_weight",
       .shape = "P,E",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + rows + N"},
      {.name = "grad_q_proj_weight",
       .shape = "E,E",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + S + N"},
      {.name = "grad_k_proj_weight",
       .shape = "E,K",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + L + N"},
      {.name = "grad_v_proj_weight",
       .shape = "E,V",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + L + N"},
      {.name = "grad_in_proj_bias",
       .shape = "P",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + rows + N"},
      {.name = "grad_out_proj_weight", .shape = "E,E", .role = Role::grad_input, .terms = "in + D + S + N"},
      {.name = "grad_out_proj_bias", .shape = "E", .role = Role::grad_input, .optional = true, .terms = "N"},
      {.name = "grad_attn_bias",
       .shape = "A*",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + copies_A"},
      {.name = "grad_key_padding_bias",
       .shape = "B*,S",
       .role = Role::grad_input,
       .optional = true,
       .terms = "in + E + D + H L"},
  };
  static constexpr Example examples[] = {
      {"L=3,B=2,E=4,P=12", "num_heads=2,is_causal=true",
       "key,value,q_proj_weight,k_proj_weight,v_proj_weight,attn_mask,attn_bias,key_padding_mask,key_padding_"
       "bias"},
      {"L=2,B=2,E=2,S=2,K=1,V=3,P=6", "num_heads=2,batch_first=true,average_attn_weights=false",
       "in_proj_weight,attn_mask,attn_bias,key_padding_mask"},
      {"L=3,B=,E=6,S=4,K=6,P=18,A=3x4", "num_heads=3,scale=0.7",
       "value,q_proj_weight,k_proj_weight,v_proj_weight,in_proj_bias,attn_mask,key_padding_mask,grad_attn_"
       "output_weights"},
      {"L=5,B=2,E=4,P=12,V=4,S=5,M=2x5x5", "num_heads=1",
       "key,q_proj_weight,k_proj_weight,v_proj_weight,out_proj_bias,attn_bias,key_padding_bias,grad_attn_"
       "output_weights"}};
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr Seen seen[] = {{"batch_first", "true", "vision transformers"},
                                  {"batch_first", "false", "torch's default"}};
  static constexpr Seen mistaken[] = {{"is_causal", "true", "a mask that should not be"},
                                      {"scale", "1", "scores without their scale"}};
  static constexpr Solved solved[] = {{.attribute = "num_heads",
                                       .by = Solved::By::candidates,
                                       .how = "every divisor of the channels of query, the nearest first"}};
  static constexpr RecordedAs recorded_as[] = {{"attn_output", "0"},
                                               {"attn_output_weights", "1"},
                                               {"out_proj_weight", "weight", "out_proj"},
                                               {"out_proj_bias", "bias", "out_proj"}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (arg.shape == "B*,L,S" && !a.flag("average_attn_weights")) return "B*,H,L,S";
    if (!a.flag("batch_first")) return arg.shape;
    return arg.shape == "L,B*,E"   ? "B*,L,E"
           : arg.shape == "S,B*,K" ? "B*,S,K"
           : arg.shape == "S,B*,V" ? "B*,S,V"
                                   : arg.shape;
  }

  static bool is_same(const Tensor* a, const Tensor* b) {
    return a != nullptr && b != nullptr && a->dtype() == b->dtype() && a->shape() == b->shape() &&
           std::ranges::equal(a->bytes(), b->bytes());
  }
  static void infer(Recorded& call) {
    const auto is_gradient_of = [&](std::string_view arg) {
      return call.output.starts_with("grad_") && call.output.substr(5) == arg;
    };
    const auto drop = [&](std::string_view arg) {
      if (!is_gradient_of(arg))
        std::erase_if(call.inputs, [&](const NamedTensor& t) { return t.name == arg; });
    };
    if (is_same(call.input("value"), call.input("key"))) drop("value");
    if (is_same(call.input("key"), call.input("query"))) drop("key");
    for (NamedTensor& input : call.inputs) {
      if (!is_float(input.tensor.dtype())) continue;
      if (input.name == "attn_mask") input.name = "attn_bias";
      if (input.name == "key_padding_mask") input.name = "key_padding_bias";
    }
    if (has_weights_by_head(call)) call.attributes.set("average_attn_weights", false);
  }
  static bool has_weights_by_head(const Recorded& call) {
    const Tensor *query = call.input("query"), *grad = call.input("grad_attn_output_weights");
    const Tensor* weights = call.output == "attn_output_weights" ? &call.result : grad;
    return query != nullptr && weights != nullptr && weights->shape().size() > query->shape().size();
  }

  // How far the call is from its result with these attributes.
  static double distance(const Recorded& call, const Attributes& a) {
    double square = 0;
    try {
      const auto made = compute_golden(ops::multihead_attention, call.inputs, a, Level::fp64, call.output);
      const std::vector<double> golden = output_named(made, call.output).values(),
                                recorded = call.result.values();
      if (golden.size() != recorded.size()) return infinity;
      for (std::size_t i = 0; i < golden.size(); ++i)
        square += (golden[i] - recorded[i]) * (golden[i] - recorded[i]);
    } catch (const Error&) {  // not from these inputs
      return infinity;
    }
    return std::isnan(square) ? infinity : square;
  }

  // The nearest first: where attention hardly prefers a key, other numbers of heads are within its roundings.
  static std::vector<Candidate> candidates(const Attributes& seen, const Recorded& call) {
    std::vector<std::pair<double, Candidate>> heads;
    const Tensor* query = call.input("query");
    const std::int64_t E = query == nullptr || query->shape().empty() ? 0 : query->shape().back();
    for (std::int64_t H = 1; H <= E; ++H) {
      if (E % H != 0) continue;
      Attributes tried = seen;
      tried.set("num_heads", static_cast<double>(H));
      if (has_weights_by_head(call)) tried.set("average_attn_weights", false);
      heads.push_back({distance(call, tried),
                       {{{"num_heads", static_cast<double>(H)}}, fmt::format("num_heads = {}", H)}});
    }
    std::ranges::stable_sort(heads, {}, &std::pair<double, Candidate>::first);
    std::vector<Candidate> nearest;
    for (auto& [distance, candidate] : heads) nearest.push_back(std::move(candidate));
    return nearest;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& query = shape_of_input(inputs, "query");
    const InputShape *key = find_input(inputs, "key"), *value = find_input(inputs, "value");
    if (!a.has("num_heads")) throw Error("multihead_attention: attribute 'num_heads' is missing");
    if (query.size() > 3)
      throw Error("multihead_attention: query has shape {}; expected [L, E], [L, B, E] or [B, L, E]",
                  to_string(query));
    const bool is_batched = query.size() == 3;
    const std::size_t along = is_batched && a.flag("batch_first") ? 1 : 0;
    const std::int64_t E = query.back(), L = query[along], B = is_batched ? query[1 - along] : 1,
                       H = a.integer("num_heads");
    const InputShape* of_keys = key != nullptr ? key : value;  // rank and letters are checked elsewhere
    const std::int64_t S = of_keys != nullptr ? of_keys->shape[of_keys->shape.size() == 3 ? along : 0] : L,
                       K = key != nullptr ? key->shape.back() : E,
                       V = value != nullptr ? value->shape.back() : K;
    if (H < 1 || E % H != 0)
      throw Error("multihead_attention: {} channels in {} heads; expected heads that divide them", E, H);
    check_weights(inputs, E, K, V);
    for (const auto& [letter, extent] : {std::pair<std::string_view, std::int64_t>{"S", S},
                                         {"K", K},
                                         {"V", V},
                                         {"P", 3 * E},
                                         {"H", H},
                                         {"D", E / H},
                                         {"rows", std::max(L, S)},
                                         {"N", B * std::max(L, S)},
                                         {"in", std::max({E, K, V}) + 1}})
      d.set(letter, extent);
    for (const auto& [name, letter] :
         {std::pair<std::string_view, std::string_view>{"attn_mask", "M"}, {"attn_bias", "A"}}) {
      const InputShape* given = find_input(inputs, name);
      if (given == nullptr) continue;
      if (given->shape != Shape{L, S} && given->shape != Shape{B * H, L, S}) {
        throw Error("multihead_attention: {} has shape {}; expected {} or {}", name, to_string(given->shape),
                    to_string(Shape{L, S}), to_string(Shape{B * H, L, S}));
      }
      d.set(letter, given->shape);
    }
    if (d.has("A")) d.set("copies_A", d.extents("A").size() == 3 ? 1 : B * H);
  }

  static void check_weights(InputShapes inputs, std::int64_t E, std::int64_t K, std::int64_t V) {
    const auto is_given = [&](std::string_view arg) { return find_input(inputs, arg) != nullptr; };
    const bool apart = is_given("q_proj_weight") && is_given("k_proj_weight") && is_given("v_proj_weight"),
               any_apart =
                   is_given("q_proj_weight") || is_given("k_proj_weight") || is_given("v_proj_weight");
    if (is_given("in_proj_weight") ? any_apart : !apart)
      throw Error(
          "multihead_attention: expected in_proj_weight, or q_proj_weight, k_proj_weight, v_proj_weight");
    if (is_given("in_proj_weight") && (K != E || V != E))
      throw Error("multihead_attention: in_proj_weight for {}, {} and {} channels; expected as many", E, K,
                  V);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_attn_output")) return;  // backward makes it on its way
    MultiheadAttentionOf<T> all(t, d, a);
    all.inner.run();
    all.give_results();
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    MultiheadAttentionOf<T> all(t, d, a);
    all.take_gradient();
    all.inner.run();
    all.give_results();
    all.give_gradients();
  }
};

}  // namespace

namespace ops {
extern constexpr Operator multihead_attention = describe<MultiheadAttention>();
}

}  // namespace assay
