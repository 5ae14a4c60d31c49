#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/attention_rows.h"
#include "assay/operators/engine/list.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/wrong_windows.h"

namespace assay {
namespace {

// L queries of H heads, S keys of G heads that divide them (query head h reads key head h G / H), D and V the
// widths of keys and values. M*, A*: the shapes of mask and bias. "rows": the queries of one key head.
// A masked key is left out of every sum, so that a NaN in it goes nowhere. A query without any visible key
// has out 0, lse -inf and no gradient; unless it gives all keys one weight.
struct Attention {
  static constexpr std::string_view name = "attention";
  static constexpr std::string_view math =
      "out = softmax(scale q k^T + bias) v over the visible keys, lse = log sum exp(scale q k^T + bias)";
  static constexpr std::string_view source =
      "arXiv:1706.03762 eq. 1; grouped heads arXiv:2305.13245; lse and backward arXiv:2205.14135 app. B; "
      "softcap arXiv:2408.00118 sec. 2; alibi arXiv:2108.12409 sec. 3";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.scaled_dot_product_attention",
                                                 "scaled_dot_product_attention",
                                                 "flash_attn_func",
                                                 "npu_fusion_attention",
                                                 "npu_prompt_flash_attention",
                                                 "FlashAttentionScore",
                                                 "DotProductAttention",
                                                 "TEDotProductAttention",
                                                 "Attention"};
  static constexpr Attribute attributes[] = {
      {"scale", "null", "factor of q k^T; null: 1 / sqrt(D)"},
      {"is_causal", "false", "a query does not see the keys behind its diagonal"},
      {"window_size", "[-1, -1]", "keys seen left and right of the diagonal; -1: no limit"},
      {"alignment", "\"top_left\"",
       "the diagonal where L != S: top_left (torch), or bottom_right: the last query's is at the last key "
       "(flash-attention, past keys); with documents, in each of them"},
      {"softcap", "0", "c: scores are c tanh(scale q k^T / c) before the bias; 0: no cap"},
      {"unseen", "\"zeros\"",
       "out of a query that sees no key: zeros, mean: that of all v, as softmax makes of equal scores, or "
       "either of them"},
      alibi_attribute,
      alibi_slopes_attribute,
      alibi_bias_max_attribute};
  static constexpr Arg args[] = {
      {"q", "B*,H*,L,D", Role::input},
      {"k", "B*,G*,S,D", Role::input},
      {"v", "B*,G*,S,V", Role::input},
      {.name = "mask", .shape = "M*", .role = Role::index, .low = 0, .high = 1, .optional = true},
      {.name = "bias", .shape = "A*", .role = Role::input, .optional = true},
      {.name = "sink", .shape = "H*", .role = Role::param, .optional = true},
      {.name = "document_q", .shape = "L", .role = Role::index, .low = 0, .high = 2, .optional = true},
      {.name = "document_k", .shape = "S", .role = Role::index, .low = 0, .high = 2, .optional = true},
      {.name = "cu_seqlens_q", .shape = "P", .role = Role::index, .low = 0, .high = 0, .optional = true},
      {.name = "cu_seqlens_k", .shape = "P", .role = Role::index, .low = 0, .high = 0, .optional = true},
      {"grad_out", "B*,H*,L,V", Role::grad_output},
      {.name = "grad_lse", .shape = "B*,H*,L", .role = Role::grad_output, .optional = true},
      {.name = "out", .shape = "B*,H*,L,V", .role = Role::output, .terms = "D + S"},
      {.name = "lse", .shape = "B*,H*,L", .role = Role::output, .terms = "D + S"},
      {.name = "grad_q", .shape = "B*,H*,L,D", .role = Role::grad_input, .terms = "D + S + V"},
      {.name = "grad_k", .shape = "B*,G*,S,D", .role = Role::grad_input, .terms = "D + rows + V"},
      {.name = "grad_v", .shape = "B*,G*,S,V", .role = Role::grad_input, .terms = "D + rows"},
      {.name = "grad_bias",
       .shape = "A*",
       .role = Role::grad_input,
       .optional = true,
       .terms = "D + V + copies_A"},
      {.name = "grad_sink",
       .shape = "H*",
       .role = Role::grad_input,
       .optional = true,
       .terms = "D + V + B L"},
  };
  static constexpr Example examples[] = {
      {"B=1,H=2,L=2,D=3,G=1,S=3,V=2", "", "mask,bias,sink,document_q,document_k,cu_seqlens_q,cu_seqlens_k"},
      {"B=2,H=4,L=3,D=5,G=2,S=6,V=2,M=1x1x3x6", "softcap=2",
       "bias,sink,document_q,document_k,cu_seqlens_q,cu_seqlens_k"},
      {"B=1,H=2,L=3,D=4,G=1,S=5,V=6,A=2x1x5", "is_causal=true,alignment=\"bottom_right\",scale=0.3",
       "mask,document_q,document_k,cu_seqlens_q,cu_seqlens_k"},
      {"B=,H=,L=7,D=3,G=,S=7,V=2", "window_size=[2,1]",
       "mask,bias,sink,document_k,cu_seqlens_q,cu_seqlens_k,grad_lse"},
      {"B=2,H=3,L=1,D=2,G=1,S=4,V=1", "is_causal=true,alignment=\"bottom_right\"",
       "mask,bias,document_q,document_k,cu_seqlens_q,cu_seqlens_k"},
      {"B=1,H=6,L=3,D=2,G=2,S=4,V=1", "alibi=\"distance\",alignment=\"bottom_right\"",
       "mask,bias,sink,document_q,document_k,cu_seqlens_q,cu_seqlens_k"}};
  static constexpr std::string_view linear_in = "v";
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr SameAxis same_axis[] = {{"G", "H"}, {"S", "L"}};
  static constexpr Seen seen[] = {{"is_causal", "true", "decoders"}};
  static constexpr Seen mistaken[] = {{"softcap", "0", "a cap that is left out"},
                                      {"softcap", "50", "Gemma 2"},
                                      {"window_size", "[-1, -1]", "a window that is left out"},
                                      alibi_left_out,
                                      alibi_unscaled,
                                      alibi_scaled,
                                      alibi_twice,
                                      alibi_of_all_heads,
                                      alibi_from_one,
                                      alibi_max_8};
  static constexpr Layout layouts[] = {{"[s, b, h, d]", {1, 2, 0, 3}, "Megatron-LM"},
                                       {"[b, s, h, d]", {0, 2, 1, 3}, "flash-attention"}};
  static constexpr Steered steered = {"scale", "q", "V"};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::bisection, .low = 1e-3, .high = 1e1},
      {.attribute = "scale",
       .by = Solved::By::candidates,
       .how = "YaRN's (0.1 w ln s + 1)^2 / sqrt(D), w = 1 (DeepSeek-V3, Kimi "
              "K2) or 0.707 (DeepSeek-V2), s as in "
              "rope (arXiv:2309.00071 eq. 22, modeling_deepseek.py)"},
      alibi_solved};
  static constexpr OtherValues other_values = {"window_size", wrong_windows, windows_by_heads};

  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    std::vector<Candidate> scales;
    const Tensor* q = call.input("q");
    if (q == nullptr || q->shape().empty()) return scales;
    for (const double s : seen_numbers(ops::rope, "yarn.factor")) {
      for (const double w : {1., .707}) {
        const double m = 0.1 * w * std::log(s) + 1;
        const double scale = m * m / std::sqrt(static_cast<double>(q->shape().back()));
        scales.push_back({{{"scale", scale}}, fmt::format("scale = {:.6g}", scale)});
      }
    }
    if (call.input("bias") == nullptr) std::ranges::move(or_with_alibi({}), std::back_inserter(scales));
    return scales;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k");
    if (k.size() != q.size()) {
      throw Error(
          "attention: q has shape {}, k {}; expected both [B, H, L, D], or less of the leading extents",
          to_string(q), to_string(k));
    }
    const std::size_t r = q.size();
    d.set("B", r < 3 ? Shape() : Shape(q.begin(), q.end() - 3));
    d.set("H", r < 3 ? Shape() : Shape{q[r - 3]});
    d.set("G", r < 3 ? Shape() : Shape{k[r - 3]});
    d.set("L", q[r - 2]);
    d.set("D", q[r - 1]);
    d.set("S", k[r - 2]);
    const std::int64_t H = d.at("H"), G = d.at("G"), L = d.at("L");
    if (G == 0 ? H != 0 : H % G != 0) {
      throw Error("attention: q has {} heads, k {}; the heads of k must divide those of q", H, G);
    }
    d.set("rows", G == 0 ? 0 : H / G * L);
    for (const auto& [name, letter] :
         {std::pair<std::string_view, std::string_view>{"mask", "M"}, {"bias", "A"}}) {
      if (const InputShape* given = find_input(inputs, name)) d.set(letter, given->shape);
    }
    check_visible_keys(d, inputs, a);
    if (d.has("A")) {
      const std::int64_t A = d.at("A");
      d.set("copies_A", A == 0 ? 0 : d.at("B") * H * L * d.at("S") / A);
    }
    if (!(a.real("softcap") >= 0))
      throw Error("attention: softcap is {}; expected 0 or above", a.real("softcap"));
    check_alibi(name, a);
  }

  // y_l = sum weight_s b_s of each query's keys
  template <class T>
  static void sum_keys(const SomeQueries<T>& of, const std::vector<std::vector<Weighted<T>>>& weights,
                       const T* b, std::int64_t C, T* y) {
    const T* first = b + of.first_key * C;
    weighted_sums(weights, first, of.end_key - of.first_key, C, y,
                  [&](const std::vector<Weighted<T>>& list, std::int64_t c) {
                    return sum_of_list<T>(list, 0, list.size(), first, C, c);
                  });
  }
  template <class T>
  static T sum_of_list(const std::vector<Weighted<T>>& list, std::size_t begin, std::size_t end, const T* b,
                       std::int64_t C, std::int64_t c) {
    return sum<T>(static_cast<std::int64_t>(end - begin), [&](auto i) {
      const Weighted<T>& w = list[begin + static_cast<std::size_t>(i)];
      return w.weight * b[w.k * C + c];
    });
  }

  // Of some queries: all is of some of their keys.
  template <class T>
  static std::int64_t work_of_block(const AttentionInputs<T>& in) {
    return std::min(in.L, queries_at_once) * in.S * (in.D + in.V);
  }

  // Some queries of a head, and what forward makes of them.
  template <class T>
  struct MadeRows {
    std::vector<AttentionRow<T>> rows;
    typename SumsOfKeys<T>::Lists weights;  // the probabilities as kernels store them between two products
  };
  template <class T>
  static MadeRows<T> rows_of(const AttentionInputs<T>& in, std::int64_t head, SomeQueries<T>& some, T* out,
                             T* lse) {
    const DotProducts<T> scores = in.scores(head, some);
    const std::int64_t first = head * in.L + some.first;
    MadeRows<T> made{{}, typename SumsOfKeys<T>::Lists(static_cast<std::size_t>(some.count))};
    for (std::int64_t i = 0; i < some.count; ++i) {
      made.rows.push_back(in.row(head, some, i, scores));
      const AttentionRow<T>& row = made.rows.back();
      if (lse != nullptr) lse[first + i] = row.lse;
      auto& of_row = made.weights[static_cast<std::size_t>(i)];
      of_row.reserve(row.keys.size());
      for (std::size_t at = 0; at < row.keys.size(); ++at)
        of_row.push_back({row.keys[at] - some.first_key, stored(row.p[at])});
    }
    sum_keys(some, made.weights, in.v + in.key_head(head) * in.S * in.V, in.V, out + first * in.V);
    return made;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    const AttentionInputs<T> in(t, d, a);
    const std::int64_t heads = d.at("B") * in.H;
    T *out = t["out"].data(), *lse = t.has("lse") ? t["lse"].data() : nullptr;
    const std::int64_t blocks = (in.L + queries_at_once - 1) / queries_at_once;
    each_in_parallel(heads * blocks, grain_of(work_of_block(in)), [&](std::int64_t block) {
      const std::int64_t head = block / blocks, l = block % blocks * queries_at_once;
      SomeQueries<T> some = in.queries(head, l);
      (void)rows_of(in, head, some, out, lse);
    });
  }

  // dp = g v^T, ds = p (dp - sum p dp + grad_lse), grad_q = scale ds k, grad_k = scale ds^T q, grad_v = p^T g
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const AttentionInputs<T> in(t, d, a);
    const std::int64_t L = in.L, S = in.S, D = in.D, V = in.V, shared_by = in.G == 0 ? 0 : in.H / in.G;
    const T* g = t["grad_out"].data();
    T *out = t["out"].data(), *lse = t.has("lse") ? t["lse"].data() : nullptr;
    T *grad_q = t["grad_q"].data(), *grad_k = t["grad_k"].data(), *grad_v = t["grad_v"].data();
    const auto g_lse = t.optional("grad_lse"), grad_bias = t.optional("grad_bias"),
               grad_sink = t.optional("grad_sink");
    std::vector<std::vector<T>> of_bias(grad_bias ? static_cast<std::size_t>(t.size("bias")) : 0);
    std::vector<std::vector<T>> of_sink(grad_sink ? static_cast<std::size_t>(in.H) : 0);
    const std::int64_t key_heads = d.at("B") * in.G;
    // All heads add to the bias and to the sinks, one after the other.
    const std::int64_t at_once = grad_bias || grad_sink ? std::max<std::int64_t>(key_heads, 1)
                                                        : grain_of(shared_by * work_of_block(in));
    each_in_parallel(key_heads, at_once, [&](std::int64_t g_head) {
      const std::int64_t first_row = g_head * shared_by * L, rows = shared_by * L;
      // Of each key, by the queries that see it.
      SumsOfKeys<T> of_k(S, D, in.q + first_row * D, rows), of_v(S, V, g + first_row * V, rows);
      for (std::int64_t r = first_row; r < first_row + rows;) {
        const std::int64_t head = r / L;
        SomeQueries<T> some = in.queries(head, r % L);
        const MadeRows<T> all = rows_of(in, head, some, out, lse);
        const DotProducts<T> dps(g + r * V, some.count, in.v + (g_head * S + some.first_key) * V,
                                 some.end_key - some.first_key, V);
        typename SumsOfKeys<T>::Lists slopes(static_cast<std::size_t>(some.count));
        for (std::int64_t i = 0; i < some.count; ++i, ++r) {
          const AttentionRow<T>& row = all.rows[static_cast<std::size_t>(i)];
          slopes[static_cast<std::size_t>(i)].reserve(row.keys.size());
          std::vector<T> dp;
          dp.reserve(row.keys.size());
          for (const std::int64_t s : row.keys) dp.push_back(stored(dps(i, s - some.first_key)));
          const T inner = without_cancellation<T>(
              [&] {
                return sum<T>(row.size(), [&](auto j) {
                  return row.p[static_cast<std::size_t>(j)] * dp[static_cast<std::size_t>(j)];
                });
              },
              [&] { return sum<T>(V, [&](auto c) { return g[r * V + c] * out[r * V + c]; }); });
          const T shared = g_lse ? g_lse.data()[r] - inner : -inner;
          for (std::size_t j = 0; j < dp.size(); ++j) {
            const std::int64_t s = row.keys[j];
            T slope = row.p[j] * (dp[j] + shared);
            if (grad_bias)
              of_bias[static_cast<std::size_t>(in.of_bias(head, some.first + i, s))].push_back(slope);
            if (in.capped) slope *= row.slope[j];
            const T ds = stored(stored(slope) * in.scale);
            slopes[static_cast<std::size_t>(i)].push_back({s - some.first_key, ds});
          }
          if (grad_sink) of_sink[static_cast<std::size_t>(head % in.H)].push_back(row.sink * shared);
        }
        const std::int64_t first = r - some.count;
        sum_keys(some, slopes, in.k + g_head * S * D, D, grad_q + first * D);
        of_k.add(first - first_row, slopes, some.first_key, some.end_key);
        of_v.add(first - first_row, all.weights, some.first_key, some.end_key);
      }
      sum_queries(of_k, in.q + first_row * D, rows, L, D, grad_k + g_head * S * D);
      sum_queries(of_v, g + first_row * V, rows, L, V, grad_v + g_head * S * V);
    });
    if (grad_bias) sum_up(of_bias, grad_bias.data());
    if (grad_sink) sum_up(of_sink, grad_sink.data());
  }

  // y_s = sum weight_r b_r over all queries of each key. Where keys are repeated for the heads that share
  // them, each head's part is stored.
  template <class T>
  static void sum_queries(const SumsOfKeys<T>& of, const T* b, std::int64_t rows, std::int64_t L,
                          std::int64_t C, T* y) {
    if (!of.has_lists()) return of.put(y);
    weighted_sums(of.lists(), b, rows, C, y, [&](const std::vector<Weighted<T>>& seen, std::int64_t c) {
      const auto part = [&](std::size_t begin, std::size_t end) {
        return sum_of_list<T>(seen, begin, end, b, C, c);
      };
      return at_once_or<T>([&] { return part(0, seen.size()); },
                           [&] {
                             std::vector<T> parts;
                             for (std::size_t begin = 0, end = 0; begin < seen.size(); begin = end) {
                               while (end < seen.size() && seen[end].k / L == seen[begin].k / L) ++end;
                               parts.push_back(stored(part(begin, end)));
                             }
                             return sum<T>(static_cast<std::int64_t>(parts.size()),
                                           [&](auto i) { return parts[static_cast<std::size_t>(i)]; });
                           });
    });
  }

  template <class T>
  static void sum_up(const std::vector<std::vector<T>>& lists, T* sums) {
    for (const std::vector<T>& list : lists) {
      *sums++ = sum<T>(static_cast<std::int64_t>(list.size()),
                       [&](auto i) { return list[static_cast<std::size_t>(i)]; });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator attention = describe<Attention>();
}

}  // namespace assay
