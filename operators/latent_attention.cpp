#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"
#include "assay/operators/engine/wrong_windows.h"

namespace assay {
namespace {

// B sequences of L tokens. Q*, K*, O*: channels, of all heads side by side or by head. A head has N + R of
// them in q, N + W in kv: its keys without the part that turns, then its values. The last R of the Z channels
// of `compressed` are the part that turns, the same for all heads; the Z - R before them make kv and take no
// part here. The tables as in rotary_attention: cos and sin of C = R columns, or cis, cos + i sin of C = R/2
// pairs (2i, 2i + 1), U = 2 numbers for each, whatever the style. selected: the numbers of the keys that a
// query sees (DeepSeek's sparse attention), of which a mask may hide some; what is no key's number is none.
struct LatentAttention {
  static constexpr std::string_view name = "latent_attention";
  static constexpr std::string_view math =
      "out = attention([q_nope, turn(q_rope)], [k_nope, turn(k_rope)], v), turn(x) = x cos + swap(x) sin; "
      "swap(x) = (-x_j, x_i) in each pair";
  static constexpr std::string_view source =
      "arXiv:2405.04434 eq. 14 to 19; Hugging Face transformers DeepseekV3Attention";
  static constexpr Attribute attributes[] = {
      {"heads", "null", "null: the third extent of q where it is given by head"},
      {"style", "\"interleaved\"",
       "pairs are interleaved: (2i, 2i + 1), both of which turn by column i of the tables, or half: (i, i + "
       "R/2), each by the column of its place"},
      {"scale", "null", "factor of q k^T; null: mscale^2 / sqrt(N + R)"},
      {"mscale", "1", "YaRN's 0.1 w ln s + 1 (arXiv:2309.00071 eq. 22, modeling_deepseek.py)"},
      {"is_causal", "true", "a query does not see the keys behind it"},
      {"one_head", "false", "kv is [B, 1, L, K*]: made of a latent that was seen as one head"}};
  static constexpr Arg args[] = {
      {"q", "B,L,Q*", Role::input},
      {"kv", "B,L,K*", Role::input},
      {"compressed", "B,L,Z", Role::input},
      {.name = "cos", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "sin", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "cis", .shape = "T*,C,U", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "selected", .shape = "B,L,X", .role = Role::index, .low = 0, .high = 3, .optional = true},
      {"grad_out", "B,L,O*", Role::grad_output},
      {.name = "out", .shape = "B,L,O*", .role = Role::output, .terms = "2 + D + L"},
      {.name = "grad_q", .shape = "B,L,Q*", .role = Role::grad_input, .terms = "2 + D + L + W"},
      {.name = "grad_kv", .shape = "B,L,K*", .role = Role::grad_input, .terms = "2 + D + L + W"},
      {.name = "grad_compressed", .shape = "B,L,Z", .role = Role::grad_input, .terms = "2 + D + heads L + W"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=2,Q=8,K=6,Z=3,T=1x2,C=2", "heads=2", "cis,selected"},
      {"B=2,L=2,Q=8,K=6,Z=3,T=1x2,C=1,U=2", "heads=2", "cos,sin,selected"},
      {"B=3,L=3,Q=1x6,K=4,Z=5,T=3x3,C=4", "style=\"half\",is_causal=false,mscale=1.2", "cis,selected"},
      {"B=2,L=3,Q=8,A=1,K=6,Z=3,T=3,C=2", "heads=2,one_head=true", "cis,selected"},
      {"B=2,L=4,Q=8,K=6,Z=3,T=4,C=2,X=2", "heads=2", "cis"}};
  static constexpr std::string_view functional_inputs[] = {"q", "kv", "compressed", "cos", "sin", "selected"},
                                    functional_instead[] = {"q", "kv", "compressed", "cis", "selected"};
  static constexpr std::string_view causal_along = "L";  // if is_causal, as in its first variant
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr Seen seen[] = {{"style", "\"interleaved\"", "DeepSeek-V3, Kimi K2"},
                                  {"style", "\"half\"", "rope_interleave = false"},
                                  {"mscale", "1.3688879454113936", "DeepSeek-V3: s = 40, w = 1"},
                                  {"mscale", "1.3465735902799727", "Kimi K2: s = 32, w = 1"},
                                  {"mscale", "1.2608037774058554", "DeepSeek-V2: s = 40, w = 0.707"}};
  static constexpr Seen mistaken[] = {{"is_causal", "false", "a mask that is left out"},
                                      {"mscale", "1", "YaRN's factor that is left out"}};
  static constexpr Steered steered = {"scale", "q", "W"};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::bisection, .low = 1e-3, .high = 1e1}};
  static constexpr OtherValues other_values = {"window_size", wrong_windows, windows_by_tokens};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool is_kv = arg.name == "kv" || arg.name == "grad_kv";
    return is_kv && a.flag("one_head") ? "B,A,L,K*" : arg.shape;
  }
  static bool has_one_head(const Shape& q, const Shape& kv) {
    return kv.size() > 3 && kv[1] == 1 && q.size() > 2 && q[1] == kv[2];
  }
  static std::int64_t channels(const Shape& x, bool has_one_head = false) {
    const std::ptrdiff_t first = has_one_head ? 3 : 2;
    return std::ssize(x) <= first ? 0 : element_count(Shape(x.begin() + first, x.end()));
  }

  // K - O = heads N, Q - heads N = heads R; 0 if they are none.
  static std::int64_t heads_of(const Shape& q, const Shape& kv, std::int64_t R, const Shape& out) {
    const std::int64_t turning = channels(q) - channels(kv, has_one_head(q, kv)) + channels(out);
    return R > 0 && turning > 0 && turning % R == 0 ? turning / R : 0;
  }
  static bool may_make(InputShapes inputs, const Shape& out) {
    const Shape &q = shape_of_input(inputs, "q"), &kv = shape_of_input(inputs, "kv");
    const std::int64_t R = columns_of_tables(inputs), H = heads_of(q, kv, R, out),
                       K = channels(kv, has_one_head(q, kv));
    return H > 0 && K > channels(out) && K % H == 0 && channels(out) % H == 0 &&
           shape_of_input(inputs, "compressed").back() > R;
  }
  static void infer(Recorded& call) {
    const Tensor *q = call.input("q"), *kv = call.input("kv"), *grad_out = call.input("grad_out");
    if (q == nullptr || kv == nullptr || (grad_out == nullptr && call.output != "out")) return;
    const Shape& out = grad_out != nullptr ? grad_out->shape() : call.result.shape();
    const std::int64_t R = columns_of_tables(shapes_of(call.inputs));
    if (has_one_head(q->shape(), kv->shape())) call.attributes.set("one_head", true);
    if (const std::int64_t H = heads_of(q->shape(), kv->shape(), R, out); H > 0)
      call.attributes.set("heads", static_cast<double>(H));
  }

  static bool goes_with(InputShapes before, const InputShape& next) {
    return goes_with_tokens("q", before, next);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &kv = shape_of_input(inputs, "kv"),
                &compressed = shape_of_input(inputs, "compressed");
    const bool one_head = a.flag("one_head");
    if (q.size() < 3 || kv.size() < (one_head ? 4U : 3U) || compressed.size() != 3 ||
        (one_head && kv[1] != 1)) {
      throw Error("latent_attention: q has shape {}, kv {}, compressed {}; expected [B, L, ..]{}",
                  to_string(q), to_string(kv), to_string(compressed),
                  one_head ? ", of kv [B, 1, L, ..]" : "");
    }
    const std::int64_t R = bind_tables(d, name, inputs, q[0], q[1], a);
    if (R == 0) throw Error("latent_attention: expected tables, cos and sin, or cis");
    if (!a.has("heads") && q.size() != 4) throw Error("latent_attention: attribute 'heads' is missing");
    const std::int64_t H = a.has("heads") ? a.integer("heads") : q[2], Q = channels(q),
                       K = channels(kv, one_head);
    const bool is_whole = H > 0 && Q % H == 0 && K % H == 0;
    const std::int64_t D = is_whole ? Q / H : 0, W = is_whole ? K / H - (D - R) : 0;
    if (!is_whole || R < 2 || R % 2 != 0 || D < R || W < 1 || W > K / H || compressed[2] < R) {
      throw Error(
          "latent_attention: {} heads of which {} channels turn have {} channels in q, {} in kv, and {} in "
          "compressed; expected whole heads, in q and compressed with what turns, in kv with the rest of q's "
          "and values",
          H, R, Q, K, compressed[2]);
    }
    if (a.text("style") != "half" && a.text("style") != "interleaved")
      throw Error("latent_attention: style is \"{}\"; expected half or interleaved", a.text("style"));
    d.set("D", D);
    d.set("W", W);
    d.set("heads", H);
    d.set("groups", H);
    d.set("O", Shape{H * W});
  }

  static Attributes of_inner(const Dims& d, const Attributes& a) {
    Attributes inner = of_attention(a);
    const double m = a.real("mscale");
    if (!a.has("scale") && m != 1) inner.set("scale", m * m / std::sqrt(static_cast<double>(d.at("D"))));
    return inner;
  }

  static Turn turn(std::int64_t channels, std::int64_t first, const Attributes& a) {
    const bool half = a.text("style") == "half";
    return {.channels = channels, .first = first, .half = half, .by_pair = !half};
  }

  template <class T>
  static InnerAttention<T> attention(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t B = d.at("B"), H = d.at("heads"), L = d.at("L"), D = d.at("D"), W = d.at("W"),
                       R = d.at("R"), Z = d.at("Z"), N = D - R;
    const auto compressed = t["compressed"];
    std::vector<T> shared, keys, values;
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t l = 0; l < L; ++l) {
        for (std::int64_t c = Z - R; c < Z; ++c) shared.push_back(compressed(b, l, c));
      }
    }
    shared = turned(shared, t, d, turn(R, 0, a), 1, false);
    const std::vector<T> kv = by_head(t["kv"].data(), d, H, N + W, false);
    for (std::int64_t row = 0; row < B * H * L; ++row) {
      const auto head = kv.begin() + row * (N + W), of_all = shared.begin() + (row / L / H * L + row % L) * R;
      keys.insert(keys.end(), head, head + N);
      keys.insert(keys.end(), of_all, of_all + R);
      values.insert(values.end(), head + N, head + N + W);
    }
    InnerAttention<T> inner = {d, of_inner(d, a),
                               turned(by_head(t["q"].data(), d, H, D, false), t, d, turn(D, N, a), H, false),
                               std::move(keys), std::move(values)};
    if (t.has("selected")) inner.take_mask(seen_of(t.slot("selected").indices, B * L, L), {B, 1, L, L});
    return inner;
  }

  // For each query 1 for the keys that it selects.
  static std::vector<std::int64_t> seen_of(const std::vector<std::int64_t>& selected, std::int64_t queries,
                                           std::int64_t keys) {
    std::vector<std::int64_t> seen(static_cast<std::size_t>(queries * keys), 0);
    for (std::size_t i = 0; i < selected.size(); ++i) {
      const auto query = static_cast<std::int64_t>(i / (selected.size() / static_cast<std::size_t>(queries)));
      if (selected[i] >= 0 && selected[i] < keys)
        seen[static_cast<std::size_t>(query * keys + selected[i])] = 1;
    }
    return seen;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    InnerAttention<T> inner = attention(t, d, a);
    inner.run();
    std::ranges::move(by_head(inner.made("out").data(), d, d.at("heads"), d.at("W"), true), t["out"].data());
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t B = d.at("B"), H = d.at("heads"), L = d.at("L"), D = d.at("D"), W = d.at("W"),
                       R = d.at("R"), Z = d.at("Z"), N = D - R;
    InnerAttention<T> inner = attention(t, d, a);
    inner.take_gradient(by_head(t["grad_out"].data(), d, H, W, false));
    inner.run();
    std::ranges::move(by_head(inner.made("out").data(), d, d.at("heads"), d.at("W"), true), t["out"].data());
    const std::vector<T> q = turned(inner.kept("grad_q"), t, d, turn(D, N, a), H, true);
    std::ranges::move(by_head(q.data(), d, H, D, true), t["grad_q"].data());

    const std::vector<T>&k = inner.made("grad_k"), &v = inner.made("grad_v");
    std::vector<T> kv;
    for (std::int64_t row = 0; row < B * H * L; ++row) {
      kv.insert(kv.end(), k.begin() + row * D, k.begin() + row * D + N);
      kv.insert(kv.end(), v.begin() + row * W, v.begin() + (row + 1) * W);
    }
    std::ranges::move(by_head(kv.data(), d, H, N + W, true), t["grad_kv"].data());

    const std::vector<T> parts = inner.kept("grad_k");  // a head's, before they are summed
    std::vector<T> shared;
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t l = 0; l < L; ++l) {
        for (std::int64_t c = N; c < D; ++c)
          shared.push_back(stored(sum<T>(
              H, [&](auto h) { return parts[static_cast<std::size_t>(((b * H + h) * L + l) * D + c)]; })));
      }
    }
    shared = turned(shared, t, d, turn(R, 0, a), 1, true);
    const auto compressed = t["grad_compressed"];
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t l = 0; l < L; ++l) {
        for (std::int64_t c = 0; c < Z; ++c)
          compressed(b, l, c) =
              c < Z - R ? T(0) : shared[static_cast<std::size_t>((b * L + l) * R + c - (Z - R))];
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator latent_attention = describe<LatentAttention>();
}

}  // namespace assay
