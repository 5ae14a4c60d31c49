#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"
#include "assay/operators/engine/wrong_windows.h"

namespace assay {
namespace {

// B sequences of L tokens. X*: the D channels of all heads of q and of all groups of k and v. The first R of
// D turn, by tables as in rotary_attention; without tables none does.
struct QkvAttention {
  static constexpr std::string_view name = "qkv_attention";
  static constexpr std::string_view math =
      "out = attention(turn(q), turn(k), v), where one projection made q, k and v; turn as in "
      "rotary_attention";
  static constexpr std::string_view source =
      "arXiv:1706.03762 eq. 1; Hugging Face transformers modeling_gpt2.py, modeling_phi3.py, "
      "modeling_gpt_neox.py, modeling_falcon.py";
  static constexpr Attribute attributes[] = {
      {"heads", "null", "of q"},
      {"groups", "null", "heads of k and v; null: as many as of q"},
      {"layout", "\"parts\"",
       "parts: all of q, then all of k, then all of v; groups: of each group its heads of q, then k and v"},
      style_attribute,
      scale_attribute,
      causal_attribute,
      window_attribute,
      softcap_attribute,
      unseen_attribute,
      alibi_attribute,
      alibi_slopes_attribute,
      alibi_bias_max_attribute};
  static constexpr Arg args[] = {
      {"qkv", "B,L,X*", Role::input},
      {.name = "cos", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "sin", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      mask_argument,
      {"grad_out", "B,L,O*", Role::grad_output},
      {.name = "out", .shape = "B,L,O*", .role = Role::output, .terms = "2 + D + L"},
      {.name = "grad_qkv", .shape = "B,L,X*", .role = Role::grad_input, .terms = "2 + D + rows + D"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=3,X=12,T=1x3,C=2", "heads=2", "mask"},
      {"B=1,L=4,X=32,T=1x1x6,C=4", "heads=4,groups=2,layout=\"groups\",scale=0.5", "mask"},
      {"B=1,L=3,X=15,T=1x3,C=2", "heads=3,groups=1,alibi=\"scaled\"", "cos,sin,mask"},
      {"B=2,L=3,X=12,M=2x1x3x3", "heads=2,is_causal=false", "cos,sin"}};
  static constexpr std::string_view functional_inputs[] = {"qkv", "cos", "sin", "mask"};
  static constexpr std::string_view causal_along = "L";  // if is_causal, as in its first variant
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr Seen seen[] = {
      {"layout", "\"parts\"", "GPT-2, Phi-3"},
      {"layout", "\"groups\"", "GPT-NeoX, BLOOM, Falcon"},
      {"style", "\"interleaved\"", "GPT-J"},
      {"style", "\"half_of_pairs\"", "FlashAttention's rotary"},
      {"style", "\"interleaved_of_pairs\"", "its other one, Llama in real numbers"},
      {"is_causal", "false", "encoders"}};
  static constexpr Seen mistaken[] = {{"is_causal", "false", "a mask that is left out"},
                                      {"style", "\"half\"", "pairs of another layout"},
                                      {"layout", "\"parts\"", "heads that are cut in another order"},
                                      {"layout", "\"groups\"", "heads that are cut in another order"},
                                      {"window_size", "[-1, -1]", "a window that is left out"},
                                      alibi_left_out,
                                      alibi_unscaled,
                                      alibi_scaled,
                                      alibi_twice,
                                      alibi_of_all_heads,
                                      alibi_from_one,
                                      alibi_max_8};
  static constexpr Solved solved[] = {
      {.attribute = "heads",
       .by = Solved::By::candidates,
       .how = "every number that the channels of qkv and of the result allow"},
      alibi_solved};
  static constexpr OtherValues other_values = {"window_size", wrong_windows, windows_by_tokens};

  // k and v have as many channels, and each of their heads some of q.
  static bool may_make(InputShapes inputs, const Shape& out) {
    const std::int64_t of_q = channels_of(out), rest = channels_of(shape_of_input(inputs, "qkv")) - of_q;
    return rest > 0 && rest % 2 == 0 && of_q > 0 && of_q % (rest / 2) == 0;
  }

  static std::vector<Candidate> candidates(const Attributes& seen, const Recorded& call) {
    std::vector<Candidate> all;
    const Tensor *qkv = call.input("qkv"), *grad_out = call.input("grad_out");
    if (!has_tables(call) && seen.has("style")) return all;
    if (qkv == nullptr || (grad_out == nullptr && call.output != "out")) return all;
    const std::int64_t of_q = channels_of(grad_out != nullptr ? grad_out->shape() : call.result.shape());
    const std::int64_t of_k = (channels_of(qkv->shape()) - of_q) / 2;
    for (std::int64_t D = least_channels(call); D <= of_k; ++D) {
      if (of_k % D != 0 || of_q % of_k != 0) continue;
      const std::int64_t heads = of_q / D, groups = of_k / D;
      all.push_back({{{"heads", static_cast<double>(heads)}, {"groups", static_cast<double>(groups)}},
                     fmt::format("heads = {}, groups = {}", heads, groups)});
    }
    return may_have_alibi(seen, call) ? or_with_alibi(std::move(all)) : all;
  }

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* qkv = find_input(before, "qkv");
    if (next.name == "mask")
      return qkv == nullptr || mask_goes_with(next.shape, qkv->shape[0], qkv->shape[1], qkv->shape[1]);
    return goes_with_tokens("qkv", before, next);
  }
  static void infer(Recorded& call) { infer_unseen(call); }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& qkv = shape_of_input(inputs, "qkv");
    if (!a.has("heads")) throw Error("qkv_attention: attribute 'heads' is missing");
    if (qkv.size() < 3) throw Error("qkv_attention: qkv has shape {}; expected [B, L, ..]", to_string(qkv));
    const std::int64_t H = a.integer("heads"), G = a.has("groups") ? a.integer("groups") : H,
                       X = channels_of(qkv), R = bind_tables(d, name, inputs, qkv[0], qkv[1], a);
    if (H < 1 || G < 1 || H > X || H % G != 0 || X % (H + 2 * G) != 0 ||
        X / (H + 2 * G) < std::max<std::int64_t>(R, 1)) {
      throw Error(
          "qkv_attention: {} channels for {} heads and {} groups, of each of which {} turn; expected groups "
          "that divide the heads, and as many channels for each, no fewer than turn",
          X, H, G, R);
    }
    const std::string& layout = a.text("layout");
    if (layout != "parts" && layout != "groups")
      throw Error("qkv_attention: layout is \"{}\"; expected parts or groups", layout);
    const std::int64_t D = X / (H + 2 * G);
    d.set("D", D);
    d.set("W", D);
    d.set("heads", H);
    d.set("groups", G);
    d.set("rows", H / G * qkv[1]);
    d.set("O", Shape{H * D});
    check_mask(name, inputs, {qkv[0], H, qkv[1], qkv[1]});
  }

  // Where the heads of q, k and v begin among the channels of a token.
  static std::array<std::vector<std::int64_t>, 3> places(const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups"), D = d.at("D"), n = H / G;
    const bool by_group = a.text("layout") == "groups";
    std::array<std::vector<std::int64_t>, 3> at;
    for (std::int64_t h = 0; h < H; ++h) at[0].push_back((by_group ? h / n * (n + 2) + h % n : h) * D);
    for (std::int64_t g = 0; g < G; ++g) {
      at[1].push_back((by_group ? g * (n + 2) + n : H + g) * D);
      at[2].push_back((by_group ? g * (n + 2) + n + 1 : H + G + g) * D);
    }
    return at;
  }

  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims& d,
                                               const Attributes& a) {
    if (output == "out") return by_groups(shape, d, false);
    const std::int64_t D = d.at("D"), L = d.at("L"), G = d.at("groups"), X = (d.at("heads") + 2 * G) * D;
    std::vector<std::int64_t> of_channel(static_cast<std::size_t>(X)), groups;
    for (const std::vector<std::int64_t>& firsts : places(d, a)) {
      for (std::int64_t h = 0; h < std::ssize(firsts); ++h)
        std::fill_n(of_channel.begin() + firsts[static_cast<std::size_t>(h)], D, h * G / std::ssize(firsts));
    }
    for (std::int64_t i = 0; i < element_count(shape); ++i)
      groups.push_back(i / (L * X) * G + of_channel[static_cast<std::size_t>(i % X)]);
    return groups;
  }

  template <class T>
  static std::vector<T> part_of(const T* qkv, const Dims& d, const std::vector<std::int64_t>& at) {
    const std::int64_t tokens = d.at("B") * d.at("L"), D = d.at("D"), X = d.at("X");
    std::vector<T> part;
    part.reserve(static_cast<std::size_t>(tokens * std::ssize(at) * D));
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (const std::int64_t first : at)
        part.insert(part.end(), qkv + t * X + first, qkv + t * X + first + D);
    }
    return by_head(part.data(), d, std::ssize(at), D, false);
  }

  template <class T>
  static void put(T* qkv, const Dims& d, const std::vector<std::int64_t>& at,
                  const std::vector<T>& by_heads) {
    const std::int64_t tokens = d.at("B") * d.at("L"), D = d.at("D"), X = d.at("X");
    const std::vector<T> part = by_head(by_heads.data(), d, std::ssize(at), D, true);
    auto next = part.begin();
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (const std::int64_t first : at) {
        std::copy_n(next, D, qkv + t * X + first);
        next += D;
      }
    }
  }

  template <class T>
  static InnerAttention<T> attention(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto at = places(d, a);
    const T* qkv = t["qkv"].data();
    InnerAttention<T> inner = {
        d, of_attention(a), turned(part_of(qkv, d, at[0]), t, d, turn_of(d, a), d.at("heads"), false),
        turned(part_of(qkv, d, at[1]), t, d, turn_of(d, a), d.at("groups"), false), part_of(qkv, d, at[2])};
    inner.take_mask_of(t);
    return inner;
  }

  template <class T>
  static void give_out(Tensors<T>& t, const Dims& d, InnerAttention<T>& inner) {
    std::ranges::move(by_head(inner.made("out").data(), d, d.at("heads"), d.at("W"), true), t["out"].data());
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerAttention<T> inner = attention(t, d, a);
    inner.run();
    give_out(t, d, inner);
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto at = places(d, a);
    InnerAttention<T> inner = attention(t, d, a);
    inner.take_gradient(by_head(t["grad_out"].data(), d, d.at("heads"), d.at("W"), false));
    inner.run();
    give_out(t, d, inner);
    T* gradient = t["grad_qkv"].data();
    put(gradient, d, at[0], turned(inner.kept("grad_q"), t, d, turn_of(d, a), d.at("heads"), true));
    put(gradient, d, at[1], turned(inner.kept("grad_k"), t, d, turn_of(d, a), d.at("groups"), true));
    put(gradient, d, at[2], inner.made("grad_v"));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator qkv_attention = describe<QkvAttention>();
}

}  // namespace assay
