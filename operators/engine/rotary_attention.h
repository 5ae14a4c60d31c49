#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/alibi.h"
#include "assay/operators/engine/attention_rows.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/inner_call.h"
#include "assay/operators/engine/padding_mask.h"

/// Attention whose queries and keys turn first, by tables of cos and sin: what operators of it share. Their
/// B sequences of L tokens have "heads" heads in q and "groups" in k and v, with D channels in q and k and W
/// in v.
namespace assay {

inline constexpr Attribute scale_attribute = {"scale", "null", "factor of q k^T; null: 1 / sqrt(D)"},
                           causal_attribute = {"is_causal", "true",
                                               "a query does not see the keys behind it"},
                           window_attribute = {"window_size", "[-1, -1]",
                                               "keys seen left and right of a query; -1: no limit"},
                           softcap_attribute = {"softcap", "0",
                                                "c: scores are c tanh(scale q k^T / c); 0: no cap"},
                           style_attribute = {"style", "\"half\"",
                                              "which channels turn in pairs, as in rotary_attention"};

/// Those attributes that are attention's.
inline Attributes of_attention(const Attributes& a) {
  Attributes given;
  for (const char* same : {"scale", "is_causal", "window_size", "softcap", "alibi", "alibi_slopes",
                           "alibi_bias_max", "unseen"}) {
    if (const auto found = a.values().find(same); found != a.values().end()) given.set(same, found->second);
  }
  return complete_attributes(ops::attention, given);
}

/// Behind the tokens of [B, L, ..].
inline std::int64_t channels_of(const Shape& x) {
  return x.size() < 3 ? 0 : element_count(Shape(x.begin() + 2, x.end()));
}

/// The same, or of [B, heads, L, D].
inline std::int64_t channels_by(const Shape& x, bool heads_first) {
  return heads_first ? (x.size() == 4 ? x[1] * x[3] : 0) : channels_of(x);
}

/// What turns q and k, by the shape of its tables.
struct Tables {
  std::int64_t sequences;  ///< 1: all turn alike
  std::int64_t rows;       ///< of a sequence, whose tokens turn by the first of them
  std::int64_t columns;    ///< of cos and of sin
};

/// Tables as programs make them: [B, M, C], or the same for all sequences as [M, C], with extents of 1
/// anywhere but last; cis with [.., C, 2]. Nothing if these are none for B sequences of L <= M tokens.
inline std::optional<Tables> tables_of(const InputShape& table, std::int64_t B, std::int64_t L) {
  Shape extents = table.shape;
  if (table.name == "cis") {
    if (extents.empty() || extents.back() != 2) return std::nullopt;
    extents.pop_back();
  }
  if (extents.empty()) return std::nullopt;
  const std::int64_t columns = extents.back();
  extents.pop_back();
  if (extents.size() != 2 || extents[0] != B || extents[1] < L) std::erase(extents, 1);
  if (extents.empty() && L == 1) return Tables{1, 1, columns};
  if (extents.size() == 1 && extents[0] >= L) return Tables{1, extents[0], columns};
  if (extents.size() == 2 && extents[0] == B && extents[1] >= L) return Tables{B, extents[1], columns};
  return std::nullopt;
}

inline const InputShape* table_of(InputShapes inputs) {
  const InputShape* cis = find_input(inputs, "cis");
  return cis != nullptr ? cis : find_input(inputs, "cos");
}

/// For an operator's `goes_with`: whether tables are for the sequences of the input before them.
inline bool goes_with_tokens(std::string_view of_tokens, InputShapes before, const InputShape& next) {
  if (next.name != "cos" && next.name != "sin" && next.name != "cis") return true;
  const InputShape* tokens = find_input(before, of_tokens);
  return tokens == nullptr ||
         (tokens->shape.size() > 1 && tables_of(next, tokens->shape[0], tokens->shape[1]).has_value());
}

/// The columns of the tables, whatever they are for; 0 without them. Those of cis count twice, as it has a
/// number for each pair.
inline std::int64_t columns_of_tables(InputShapes inputs) {
  const InputShape* table = table_of(inputs);
  if (table == nullptr) return 0;
  const std::size_t behind = table->name == "cis" ? 2 : 1;
  if (table->shape.size() < behind) return 0;
  const std::int64_t columns = table->shape[table->shape.size() - behind];
  return behind == 2 ? 2 * columns : columns;
}

/// Binds the optional tables "cos" and "sin", or "cis", for B sequences of L tokens: "tables", their
/// sequences, "rows of tables", and R, the channels that turn; 0 without tables.
/// @throws Error  for one table without the other, for others' sequences, and for a style that is none
inline std::int64_t bind_tables(Dims& d, std::string_view op, InputShapes inputs, std::int64_t B,
                                std::int64_t L, const Attributes& a) {
  const std::string& style = a.text("style");
  const bool of_pairs = style == "half_of_pairs" || style == "interleaved_of_pairs";
  if (!of_pairs && style != "half" && style != "interleaved" && style != "by_pair") {
    throw Error(
        "{}: style is \"{}\"; expected half, interleaved, by_pair, half_of_pairs or interleaved_of_pairs", op,
        style);
  }
  d.set("R", 0);
  const InputShape *cos = find_input(inputs, "cos"), *sin = find_input(inputs, "sin");
  if ((cos == nullptr) != (sin == nullptr)) throw Error("{}: cos and sin go together", op);
  if (cos != nullptr && find_input(inputs, "cis") != nullptr)
    throw Error("{}: the tables are cos and sin, or cis, not both", op);
  const InputShape* table = table_of(inputs);
  if (table == nullptr) return 0;
  const std::optional<Tables> tables = tables_of(*table, B, L);
  if (!tables) {
    throw Error("{}: {} has shape {}; expected {} rows or more, for all sequences alike or each of {}: {}",
                op, table->name, to_string(table->shape), L, B,
                table->name == "cis" ? "[M, R / 2, 2] or [B, M, R / 2, 2]" : "[M, R] or [B, M, R]");
  }
  const std::int64_t R = table->name == "cis" || of_pairs ? 2 * tables->columns : tables->columns;
  if (R < 2 || R % 2 != 0) throw Error("{}: the tables have {} columns; expected an even number", op, R);
  d.set("tables", tables->sequences);
  d.set("rows of tables", tables->rows);
  d.set("R", R);
  return R;
}

/// The fewest channels of a head that may turn by the recorded tables.
inline std::int64_t least_channels(const Recorded& call) {
  return std::max<std::int64_t>(columns_of_tables(shapes_of(call.inputs)), 1);
}
inline bool has_tables(const Recorded& call) {
  return call.input("cos") != nullptr || call.input("cis") != nullptr;
}

/// Biases that fall with the distance are those of decoders in which nothing turns and nothing is capped.
inline bool may_have_alibi(const Attributes& seen, const Recorded& call) {
  return !has_tables(call) && !seen.has("is_causal") && !seen.has("softcap");
}

/// [B, L, heads C] to [B, heads, L, C], or back.
/// @param tokens  the letter that counts them
template <class T>
std::vector<T> by_head(const T* x, const Dims& d, std::int64_t heads, std::int64_t C, bool back,
                       std::string_view tokens = "L") {
  const std::int64_t B = d.at("B"), L = d.at(tokens);
  std::vector<T> y(static_cast<std::size_t>(B * L * heads * C));
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t l = 0; l < L; ++l) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t of_token = ((b * L + l) * heads + h) * C, of_head = ((b * heads + h) * L + l) * C;
        for (std::int64_t c = 0; c < C; ++c) {
          const auto to = static_cast<std::size_t>((back ? of_token : of_head) + c);
          y[to] = x[(back ? of_head : of_token) + c];
        }
      }
    }
  }
  return y;
}

/// For an operator's `steps_apart`: what queries share by turned keys, rows by their statistics, stays in a
/// sequence and in a group of heads with the same keys.
/// @param shape  [B, tokens, channels..], or heads first: [B, heads, tokens, D]
inline std::vector<std::int64_t> by_groups(const Shape& shape, const Dims& d, bool heads_first) {
  std::vector<std::int64_t> groups;
  const std::int64_t B = d.at("B"), G = d.at("groups"), count = element_count(shape);
  if (shape.size() < 3 || shape[0] != B || count == 0) return groups;
  const std::int64_t of_sequence = count / B, split = heads_first ? of_sequence : of_sequence / shape[1];
  if (split % G != 0) return groups;
  for (std::int64_t i = 0; i < count; ++i) groups.push_back(i / of_sequence * G + i % split / (split / G));
  return groups;
}

/// Which channels of a head turn in pairs, and by which columns of the tables.
struct Turn {
  std::int64_t channels;  ///< of a head
  std::int64_t first;     ///< of the R that turn
  bool half;              ///< pairs are (i, i + R/2), else (2i, 2i + 1)
  bool by_pair;           ///< both of pair p turn by column p, else each by the column of its place
};

/// The first of the D channels, by the attribute "style".
inline Turn turn_of(const Dims& d, const Attributes& a) {
  const std::string_view style = a.text("style");
  return {.channels = d.at("D"),
          .first = 0,
          .half = style.starts_with("half"),
          .by_pair = style == "by_pair" || style.ends_with("_of_pairs")};
}

/// A table, by what token l of sequence b turns by.
template <class T>
class RowsOfTable {
 public:
  RowsOfTable(Tensors<T>& t, std::string_view table, const Dims& d)
      : x_(t[table].data()),
        of_sequence_(d.at("tables") == 1 ? 0 : d.at("rows of tables")),
        width_(d.at("C") * (table == "cis" ? 2 : 1)) {}
  const T* operator()(std::int64_t b, std::int64_t l) const { return x_ + (b * of_sequence_ + l) * width_; }

 private:
  const T* x_;
  std::int64_t of_sequence_, width_;
};

/// turned() by complex numbers cos + i sin: pair p is (2p, 2p + 1), and kernels store no steps in between.
template <class T>
std::vector<T> turned_by_cis(const std::vector<T>& x, Tensors<T>& t, const Dims& d, const Turn& turn,
                             std::int64_t heads, bool back) {
  const std::int64_t B = d.at("B"), L = d.at("L"), R = d.at("R");
  const RowsOfTable<T> table(t, "cis", d);
  std::vector<T> y = x;
  for (std::int64_t row = 0; row < B * heads * L; ++row) {
    const T* cis = table(row / L / heads, row % L);
    for (std::int64_t p = 0; p < R / 2; ++p) {
      const auto i = static_cast<std::size_t>(row * turn.channels + turn.first + 2 * p);
      const T &cos = cis[2 * p], sin = back ? -cis[2 * p + 1] : cis[2 * p + 1];
      y[i] = stored(x[i] * cos - x[i + 1] * sin);
      y[i + 1] = stored(x[i + 1] * cos + x[i] * sin);
    }
  }
  return y;
}

/// Turns [B, heads, L, channels] by the tables "cos" and "sin", or "cis", or gradients back; nothing without
/// tables.
template <class T>
std::vector<T> turned(const std::vector<T>& x, Tensors<T>& t, const Dims& d, const Turn& turn,
                      std::int64_t heads, bool back) {
  if (t.has("cis")) return turned_by_cis(x, t, d, turn, heads, back);
  if (!t.optional("cos")) return x;
  const std::int64_t B = d.at("B"), L = d.at("L"), R = d.at("R");
  const RowsOfTable<T> cosines(t, "cos", d), sines(t, "sin", d);
  std::vector<T> y = x;
  for (std::int64_t row = 0; row < B * heads * L; ++row) {
    const T *cos = cosines(row / L / heads, row % L), *sin = sines(row / L / heads, row % L);
    const std::int64_t first = row * turn.channels + turn.first;
    for (std::int64_t p = 0; p < R / 2; ++p) {
      const std::int64_t i = turn.half ? p : 2 * p, j = turn.half ? p + R / 2 : 2 * p + 1;
      const std::int64_t by_i = turn.by_pair ? p : i, by_j = turn.by_pair ? p : j;
      const T &x_i = x[static_cast<std::size_t>(first + i)], &x_j = x[static_cast<std::size_t>(first + j)];
      // y_i = x_i cos_i - x_j sin_i, y_j = x_j cos_j + x_i sin_j
      const T &down = sin[back ? by_j : by_i], &up = sin[back ? by_i : by_j];
      const T with_i = stored(x_i * cos[by_i]), of_j = stored(x_j * down), with_j = stored(x_j * cos[by_j]),
              of_i = stored(x_i * up);
      y[static_cast<std::size_t>(first + i)] = stored(back ? with_i + of_j : with_i - of_j);
      y[static_cast<std::size_t>(first + j)] = stored(back ? with_j - of_i : with_j + of_i);
    }
  }
  return y;
}

/// A call of attention, in the arithmetic of the one around it.
template <class T>
class InnerAttention : public InnerCall<T> {
 public:
  /// @param outer    S: how many keys there are; without it as many as queries
  /// @param q, k, v  by head
  InnerAttention(const Dims& outer, Attributes attributes, std::vector<T> q, std::vector<T> k,
                 std::vector<T> v)
      : InnerCall<T>(ops::attention, std::move(attributes)) {
    const std::int64_t B = outer.at("B"), L = outer.at("L"), H = outer.at("heads"), G = outer.at("groups"),
                       S = outer.has("S") ? outer.at("S") : L, D = outer.at("D"), W = outer.at("W");
    const std::vector<InputShape> inputs = {{"q", {B, H, L, D}}, {"k", {B, G, S, D}}, {"v", {B, G, S, W}}};
    for (const auto& [letter, extent] :
         {std::pair<std::string_view, std::int64_t>{"L", L}, {"S", S}, {"D", D}, {"V", W}})
      dims_.set(letter, extent);
    ops::attention.bind(dims_, inputs, attributes_);
    add("q", std::move(q));
    add("k", std::move(k));
    add("v", std::move(v));
    add("out", {});  // no lse: nobody asks for it
  }
  /// A logit for each head.
  void take_sink(std::vector<T> logits) { add("sink", std::move(logits)); }
  /// Which keys are visible, as attention has it.
  void take_mask(std::vector<std::int64_t> visible, Shape shape) {
    dims_.set("M", std::move(shape));
    add("mask", {});
    tensors_.slot("mask").indices = std::move(visible);
  }
  /// Of the call around it, if it has one: an argument with Arg::hides.
  void take_mask_of(Tensors<T>& outer) {
    if (!outer.has("mask")) return;
    auto [shape, visible] = cut_mask(outer.slot("mask").indices, outer.shape("mask"),
                                     {dims_.at("B"), dims_.at("H"), dims_.at("L"), dims_.at("S")});
    take_mask(std::move(visible), std::move(shape));
  }
  void take_bias(std::vector<T> bias, Shape shape) {
    dims_.set("A", std::move(shape));
    add("bias", std::move(bias));
  }
  /// @param of_bias  whether "grad_bias" is wanted, too, for which heads wait for each other
  void take_gradient(std::vector<T> of_out, bool of_bias = false) {
    add("grad_out", std::move(of_out));
    for (const char* gradient : {"grad_q", "grad_k", "grad_v"}) add(gradient, {});
    if (tensors_.has("sink")) add("grad_sink", {});
    if (of_bias) add("grad_bias", {});
  }
  /// Of [B, heads, L, S], 0 where a key is hidden.
  std::vector<T> probabilities() {
    const AttentionInputs<T> in(tensors_, dims_, attributes_);
    const std::int64_t heads = dims_.at("B") * in.H;
    std::vector<T> all(static_cast<std::size_t>(heads * in.L * in.S), T(0));
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t l = 0; l < in.L; l += queries_at_once) {
        SomeQueries<T> some = in.queries(head, l);
        const DotProducts<T> scores = in.scores(head, some);
        for (std::int64_t i = 0; i < some.count; ++i) {
          const AttentionRow<T> row = in.row(head, some, i, scores);
          for (std::size_t at = 0; at < row.keys.size(); ++at)
            all[static_cast<std::size_t>(((head * in.L) + l + i) * in.S + row.keys[at])] = row.p[at];
        }
      }
    }
    return all;
  }

 private:
  using InnerCall<T>::add;
  using InnerCall<T>::attributes_;
  using InnerCall<T>::dims_;
  using InnerCall<T>::tensors_;
};

}  // namespace assay
