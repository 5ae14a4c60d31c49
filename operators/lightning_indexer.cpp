#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/order.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"

namespace assay {
namespace {

// B sequences of L tokens. Q*: channels of all heads of q, side by side or by head; H heads of D, of which
// the first R turn, as those of k do, which is one for all heads. The tables as in rotary_attention. X =
// top_k keys are chosen for each query, also where it sees fewer: then any others are beside those that it
// sees. No positive factor of the scores changes a choice, so there is none. selection_gap: how much the last
// visible key chosen is ahead of the next that could have been; 0 where there is none, and below 0 without
// end where a key that is hidden was chosen in place of one that is not. `chosen` is a choice made elsewhere.
struct LightningIndexer {
  static constexpr std::string_view name = "lightning_indexer";
  static constexpr std::string_view math =
      "index_l = the top_k keys s <= l of sum over h of head_weights_lh relu(turn(q_lh) turn(k_s)^T)";
  static constexpr std::string_view source =
      "DeepSeek-V3.2-Exp, eq. 1 and 2 of its report; Hugging Face transformers modeling_deepseek_v32.py, "
      "modeling_glm_moe_dsa.py";
  static constexpr std::string_view aliases[] = {"npu_lightning_indexer", "LightningIndexer"};
  static constexpr Attribute attributes[] = {
      {"top_k", "null", "X: keys of a query"},
      {"style", "\"half\"",
       "pairs are half: (i, i + R/2), each by the column of its place, or interleaved: (2i, 2i + 1), both of "
       "which turn by column i"},
      {"is_causal", "true", "a query does not see the keys behind it"},
      {"stored_scores", "false", "products and scores are stored in the operands' dtype before the choice"}};
  static constexpr Arg args[] = {
      {"q", "B,L,Q*", Role::input},
      {"k", "B,L,D", Role::input},
      {"head_weights", "B,L,H", Role::input},
      {.name = "cos", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "sin", .shape = "T*,C", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "cis", .shape = "T*,C,U", .role = Role::input, .low = -1, .high = 1, .optional = true},
      {.name = "chosen", .shape = "B,L,X", .role = Role::index, .optional = true, .indexes = "L"},
      {.name = "index", .shape = "B,L,X", .role = Role::output_index, .gap = "selection_gap"},
      {.name = "selection_gap", .shape = "B,L", .role = Role::output, .terms = "2 + D + H"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=5,Q=2x4,D=4,H=2,T=5,C=2", "top_k=2", "cis,chosen"},
      {"B=1,L=6,Q=12,D=4,H=3,T=6,C=2,U=2", "top_k=3,style=\"interleaved\"", "cos,sin,chosen"},
      {"B=2,L=4,Q=6,D=6,H=1", "top_k=2,is_causal=false", "cos,sin,cis,chosen"}};
  static constexpr Seen seen[] = {{"style", "\"interleaved\"", "GLM-5"},
                                  {"stored_scores", "true", "autocast"}};
  static constexpr RecordedAs recorded_as[] = {{"chosen", "index", made_around}};
  static constexpr std::string_view functional_inputs[] = {"q", "k", "head_weights", "cos", "sin"},
                                    functional_instead[] = {"q", "k", "head_weights", "cis"};

  static void infer(Recorded& call) {
    const Tensor* chosen = call.index("chosen");
    const Shape& of = chosen != nullptr ? chosen->shape() : call.result.shape();
    if (of.size() == 3) call.attributes.set("top_k", static_cast<double>(of.back()));
  }
  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape *q = find_input(before, "q"), *k = find_input(before, "k");
    if (q == nullptr) return true;
    if (next.name == "k") return next.shape.back() > 0 && channels_of(q->shape) % next.shape.back() == 0;
    if (next.name == "head_weights" && k != nullptr)
      return channels_of(q->shape) == k->shape.back() * next.shape.back();
    return goes_with_tokens("q", before, next);
  }
  // Of all keys there is no choice.
  static bool may_make(InputShapes inputs, const Shape& index) {
    return index.size() == 3 && index.back() < shape_of_input(inputs, "q")[1];
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k"),
                &weights = shape_of_input(inputs, "head_weights");
    if (q.size() < 3) throw Error("lightning_indexer: q has shape {}; expected [B, L, ..]", to_string(q));
    const std::int64_t R = bind_tables(d, name, inputs, q[0], q[1], a);
    if (a.text("style") != "half" && a.text("style") != "interleaved")
      throw Error("lightning_indexer: style is \"{}\"; expected half or interleaved", a.text("style"));
    if (channels_of(q) != k.back() * weights.back() || k.back() < R) {
      throw Error(
          "lightning_indexer: q has {} channels for {} heads of {}, of which {} turn; expected whole heads",
          channels_of(q), weights.back(), k.back(), R);
    }
    if (!a.has("top_k"))
      throw Error("lightning_indexer: attribute 'top_k' is missing; expected how many keys a query chooses");
    const std::int64_t X = a.integer("top_k");
    if (X < 1 || X > q[1]) throw Error("lightning_indexer: top_k is {} of {} keys", X, q[1]);
    d.set("X", X);
  }

  // The scores of a sequence's keys for its queries.
  template <class T>
  struct Scores {
    Scores(Tensors<T>& t, const Dims& d, const Attributes& a)
        : L(d.at("L")),
          D(d.at("D")),
          H(d.at("H")),
          stores(a.flag("stored_scores")),
          weights(t["head_weights"].data()),
          q(turned(by_head(t["q"].data(), d, H, D, false), t, d, turn(d, a), H, false)),
          k(turned(t.slot("k").values, t, d, turn(d, a), 1, false)) {}
    static Turn turn(const Dims& d, const Attributes& a) {
      const bool half = a.text("style") == "half";
      return {.channels = d.at("D"), .first = 0, .half = half, .by_pair = !half};
    }
    T operator()(std::int64_t b, std::int64_t l, std::int64_t s) const {
      const T* key = k.data() + (b * L + s) * D;
      return kept(sum<T>(H, [&](auto h) {
        const T* query = q.data() + ((b * H + h) * L + l) * D;
        const T product = kept(sum<T>(D, [&](auto c) { return query[c] * key[c]; }));
        return kept(weights[(b * L + l) * H + h] * maximum(product, T(0)));
      }));
    }
    T kept(const T& x) const { return stores ? stored(x) : x; }
    std::int64_t L, D, H;
    bool stores;
    const T* weights;
    std::vector<T> q, k;  // [B, H, L, D] and [B, L, D]
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Scores<T> score(t, d, a);
    const std::int64_t L = score.L, X = d.at("X");
    const auto chosen = t.optional_index("chosen");
    const auto index = t.output_index("index");
    const auto gap = t["selection_gap"];
    each_in_parallel(d.at("B") * L, grain_of(L * score.H * score.D), [&](std::int64_t row) {
      const std::int64_t b = row / L, l = row % L, visible = a.flag("is_causal") ? l + 1 : L;
      std::vector<T> scores;
      for (std::int64_t s = 0; s < visible; ++s) scores.push_back(score(b, l, s));
      std::vector<std::int64_t> order = sorted_positions(
          visible, true, [&](std::int64_t s) -> const T& { return scores[static_cast<std::size_t>(s)]; });
      for (std::int64_t s = visible; s < L; ++s) order.push_back(s);
      std::set<std::int64_t> taken;
      for (std::int64_t i = 0; i < X; ++i) {
        const std::int64_t s = chosen ? chosen(b, l, i) : order[static_cast<std::size_t>(i)];
        if (!taken.insert(s).second)
          throw Error("lightning_indexer: 'chosen' gives query {} the key {} twice", l, s);
        index(b, l, i) = s;
      }
      gap(b, l) = gap_of(scores, order, taken);
    });
  }
  // @param order  of all keys, those that are hidden behind the others
  template <class T>
  static T gap_of(const std::vector<T>& scores, const std::vector<std::int64_t>& order,
                  const std::set<std::int64_t>& taken) {
    const T *last = nullptr, *next = nullptr;
    bool has_hidden = false;
    for (const std::int64_t s : order) {
      const bool is_taken = taken.contains(s);
      if (s >= std::ssize(scores)) {
        has_hidden = has_hidden || is_taken;
        continue;
      }
      const T& of = scores[static_cast<std::size_t>(s)];
      if (isnan(of)) return of;  // chosen first: the rest is no choice to rely on
      if (is_taken) last = &of;
      if (!is_taken && next == nullptr) next = &of;
    }
    if (next == nullptr) return T(0);
    if (has_hidden || last == nullptr) return T(-1) / T(0);
    return *last - *next;
  }
};

}  // namespace

namespace ops {
extern constexpr Operator lightning_indexer = describe<LightningIndexer>();
}

}  // namespace assay
