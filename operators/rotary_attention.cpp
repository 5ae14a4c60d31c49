#include <string>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/list.h"

namespace assay {
namespace {

// B sequences of L tokens. Q*, K*, V*, O*: channels, of all heads side by side or by head; heads have D of
// them in q and k, W in v and out. The first R = rotary_dim of D turn, by tables for P = B sequences, or for
// all alike.
struct RotaryAttention {
  static constexpr std::string_view name = "rotary_attention";
  static constexpr std::string_view math =
      "out = attention(turn(q), turn(k), v), turn(x) = x cos + swap(x) sin; swap(x) = (-x_j, x_i) in each "
      "pair";
  static constexpr std::string_view source =
      "arXiv:2104.09864 eq. 34, arXiv:1706.03762 eq. 1; Hugging Face transformers apply_rotary_pos_emb and "
      "eager_attention_forward";
  static constexpr Attribute attributes[] = {
      {"head_dim", "null", "D; null: the last extent of q where it is given by head, else R"},
      {"style", "\"half\"", "pairs are half: (i, i + R/2), or interleaved: (2i, 2i + 1)"},
      {"scale", "null", "factor of q k^T; null: 1 / sqrt(D)"},
      {"is_causal", "true", "a query does not see the keys behind it"},
      {"window_size", "[-1, -1]", "keys seen left and right of a query; -1: no limit"},
      {"softcap", "0", "c: scores are c tanh(scale q k^T / c); 0: no cap"}};
  static constexpr Arg args[] = {
      {"q", "B,L,Q*", Role::input},
      {"k", "B,L,K*", Role::input},
      {"v", "B,L,V*", Role::input},
      {.name = "cos", .shape = "P,L,R", .role = Role::input, .low = -1, .high = 1},
      {.name = "sin", .shape = "P,L,R", .role = Role::input, .low = -1, .high = 1},
      {"grad_out", "B,L,O*", Role::grad_output},
      {.name = "out", .shape = "B,L,O*", .role = Role::output, .terms = "2 + D + L"},
      {.name = "grad_q", .shape = "B,L,Q*", .role = Role::grad_input, .terms = "2 + D + L + W"},
      {.name = "grad_k", .shape = "B,L,K*", .role = Role::grad_input, .terms = "2 + D + rows + W"},
      {.name = "grad_v", .shape = "B,L,V*", .role = Role::grad_input, .terms = "2 + D + rows"},
  };
  static constexpr Example examples[] = {
      {"B=2,L=2,Q=8,K=4,V=2,P=1,R=2"},
      {"B=1,L=4,Q=2x6,K=1x6,V=3,P=1,R=4", "style=\"interleaved\",is_causal=false,scale=0.5"}};
  static constexpr std::string_view functional_inputs[] = {"q", "k", "v", "cos", "sin"};
  static constexpr std::string_view causal_along = "L";  // if is_causal, as in its first variant
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr std::string_view linear_in = "v";
  static constexpr Seen seen[] = {{"style", "\"interleaved\"", "Cohere, GPT-J"},
                                  {"is_causal", "false", "encoders"}};
  static constexpr Seen mistaken[] = {{"is_causal", "false", "a mask that is left out"},
                                      {"style", "\"half\"", "pairs of another layout"},
                                      {"window_size", "[-1, -1]", "a window that is left out"}};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::bisection, .low = 1e-3, .high = 1e1}};

  static Attributes of_attention(const Attributes& a) {
    Attributes given;
    for (const char* same : {"scale", "is_causal", "window_size", "softcap"})
      given.set(same, a.values().find(same)->second);
    return complete_attributes(ops::attention, given);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k"),
                &v = shape_of_input(inputs, "v"), &cos = shape_of_input(inputs, "cos");
    const auto channels = [](const Shape& x) {
      return x.size() < 2 ? Shape() : Shape(x.begin() + 2, x.end());
    };
    if (q.size() < 3 || k.size() < 3 || v.size() < 3 || cos.size() != 3) {
      throw Error("rotary_attention: q has shape {}, k {}, v {}, cos {}; expected [B, L, ..] and [P, L, R]",
                  to_string(q), to_string(k), to_string(v), to_string(cos));
    }
    const std::int64_t R = cos[2], D = a.has("head_dim") ? a.integer("head_dim") : q.size() == 4 ? q[3] : R;
    const std::int64_t of_q = element_count(channels(q)), of_k = element_count(channels(k)),
                       of_v = element_count(channels(v));
    if (R < 2 || R % 2 != 0 || D < R || of_q % D != 0 || of_k % D != 0 || of_k == 0 || of_q % of_k != 0 ||
        of_v % (of_k / D) != 0) {
      throw Error(
          "rotary_attention: q has {} channels, k {}, v {}, of which {} of {} turn in a head; expected whole "
          "heads, those of k as many as those of v and a divisor of those of q",
          of_q, of_k, of_v, R, D);
    }
    if (cos[0] != 1 && cos[0] != q[0])
      throw Error("rotary_attention: the tables are for {} sequences; expected 1 or {}", cos[0], q[0]);
    if (a.text("style") != "half" && a.text("style") != "interleaved")
      throw Error("rotary_attention: style is \"{}\"; expected half or interleaved", a.text("style"));
    const std::int64_t heads = of_q / D, groups = of_k / D, W = of_v / groups;
    d.set("D", D);
    d.set("W", W);
    d.set("heads", heads);
    d.set("groups", groups);
    d.set("rows", heads / groups * q[1]);
    d.set("O", Shape{heads * W});
  }

  // [B, L, heads C] to [B, heads, L, C], or back.
  template <class T>
  static std::vector<T> by_head(const T* x, const Dims& d, std::int64_t heads, std::int64_t C, bool back) {
    const std::int64_t B = d.at("B"), L = d.at("L");
    std::vector<T> y(static_cast<std::size_t>(B * L * heads * C));
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t l = 0; l < L; ++l) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t of_token = ((b * L + l) * heads + h) * C,
                             of_head = ((b * heads + h) * L + l) * C;
          for (std::int64_t c = 0; c < C; ++c) {
            const auto to = static_cast<std::size_t>((back ? of_token : of_head) + c);
            y[to] = x[(back ? of_head : of_token) + c];
          }
        }
      }
    }
    return y;
  }

  // Turns [B, heads, L, D] by the tables, or gradients back.
  template <class T>
  static std::vector<T> turned(const std::vector<T>& x, Tensors<T>& t, const Dims& d, const Attributes& a,
                               std::int64_t heads, bool back) {
    const std::int64_t B = d.at("B"), L = d.at("L"), D = d.at("D"), R = d.at("R");
    const auto cos = t["cos"], sin = t["sin"];
    const bool half = a.text("style") == "half", shared = d.at("P") == 1;
    std::vector<T> y = x;
    for (std::int64_t row = 0; row < B * heads * L; ++row) {
      const std::int64_t b = shared ? 0 : row / L / heads, l = row % L;
      for (std::int64_t p = 0; p < R / 2; ++p) {
        const std::int64_t i = half ? p : 2 * p, j = half ? p + R / 2 : 2 * p + 1;
        const T &first = x[static_cast<std::size_t>(row * D + i)],
                &second = x[static_cast<std::size_t>(row * D + j)];
        // y_i = x_i cos_i - x_j sin_i, y_j = x_j cos_j + x_i sin_j
        const T &down = back ? sin(b, l, j) : sin(b, l, i), &up = back ? sin(b, l, i) : sin(b, l, j);
        const T with_first = stored(first * cos(b, l, i)), of_second = stored(second * down),
                with_second = stored(second * cos(b, l, j)), of_first = stored(first * up);
        y[static_cast<std::size_t>(row * D + i)] =
            stored(back ? with_first + of_second : with_first - of_second);
        y[static_cast<std::size_t>(row * D + j)] =
            stored(back ? with_second - of_first : with_second + of_first);
      }
    }
    return y;
  }

  // A call of attention, in the arithmetic of this one.
  template <class T>
  class Inner {
   public:
    Inner(Tensors<T>& t, const Dims& outer, const Attributes& a) : attributes_(of_attention(a)) {
      const std::int64_t B = outer.at("B"), L = outer.at("L"), H = outer.at("heads"), G = outer.at("groups"),
                         D = outer.at("D"), W = outer.at("W");
      const std::vector<InputShape> inputs = {{"q", {B, H, L, D}}, {"k", {B, G, L, D}}, {"v", {B, G, L, W}}};
      for (const auto& [letter, extent] :
           {std::pair<std::string_view, std::int64_t>{"L", L}, {"S", L}, {"D", D}, {"V", W}})
        dims_.set(letter, extent);
      ops::attention.bind(dims_, inputs, attributes_);
      add("q", turned(by_head(t["q"].data(), outer, H, D, false), t, outer, a, H, false));
      add("k", turned(by_head(t["k"].data(), outer, G, D, false), t, outer, a, G, false));
      add("v", by_head(t["v"].data(), outer, G, W, false));
      add("out", {});
      add("lse", {});
    }
    void take_gradient(std::vector<T> of_out) {
      add("grad_out", std::move(of_out));
      for (const char* gradient : {"grad_q", "grad_k", "grad_v"}) add(gradient, {});
    }
    void run() {
      if constexpr (std::is_same_v<T, float>)
        ops::attention.run_float(tensors_, dims_, attributes_);
      else if constexpr (std::is_same_v<T, double>)
        ops::attention.run_double(tensors_, dims_, attributes_);
      else if constexpr (std::is_same_v<T, Bound>)
        ops::attention.run_bound(tensors_, dims_, attributes_);
      else
        ops::attention.run_truth(tensors_, dims_, attributes_);
    }
    const std::vector<T>& made(std::string_view output) { return tensors_.slot(output).values; }

   private:
    void add(std::string_view arg, std::vector<T> values) {
      auto& slot = tensors_.slots()[std::string(arg)];
      for (const Arg& declared : ops::attention.args) {
        if (declared.name == arg) slot.arg = &declared;
      }
      slot.shape = expand(slot.arg->shape, dims_);
      for (const Part& part : parts_of(slot.arg->shape)) slot.extents.push_back(dims_.at(part.letter));
      slot.values = std::move(values);
      slot.values.resize(static_cast<std::size_t>(element_count(slot.shape)), T(0));
    }

    Attributes attributes_;
    Dims dims_;
    Tensors<T> tensors_;
  };

  template <class T>
  static void give(Tensors<T>& t, std::string_view to, std::vector<T> values) {
    std::ranges::move(values, t[to].data());
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    Inner<T> attention(t, d, a);
    attention.run();
    give(t, "out", by_head(attention.made("out").data(), d, d.at("heads"), d.at("W"), true));
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups"), D = d.at("D"), W = d.at("W");
    Inner<T> attention(t, d, a);
    attention.take_gradient(by_head(t["grad_out"].data(), d, H, W, false));
    attention.run();
    const auto stored_all = [](std::vector<T> values) {
      for (T& v : values) v = stored(v);
      return values;
    };
    const std::vector<T> q = turned(stored_all(attention.made("grad_q")), t, d, a, H, true),
                         k = turned(stored_all(attention.made("grad_k")), t, d, a, G, true);
    give(t, "grad_q", by_head(q.data(), d, H, D, true));
    give(t, "grad_k", by_head(k.data(), d, G, D, true));
    give(t, "grad_v", by_head(attention.made("grad_v").data(), d, G, W, true));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rotary_attention = describe<RotaryAttention>();
}

}  // namespace assay
