#include <algorithm>
#include <cmath>
#include <numbers>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"
#include "assay/operators/engine/fitted_turns.h"
#include "assay/operators/engine/list.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// T: the sequence; C: the channels of a head, of which the first R = rotary_dim turn.
struct Rope {
  static constexpr std::string_view name = "rope";
  static constexpr std::string_view math =
      "(y_i, y_j) = m (x_i cos a - x_j sin a, x_j cos a + x_i sin a), a = position theta^(-2p/R) for pair p";
  static constexpr std::string_view source = "arXiv:2104.09864 eq. 34; YaRN arXiv:2309.00071 sec. 3.2 to 3.4";
  static constexpr std::string_view aliases[] = {"npu_rotary_mul",
                                                 "npu_apply_rotary_pos_emb",
                                                 "npu_interleave_rope",
                                                 "RotaryPositionEmbedding",
                                                 "fused_apply_rotary_pos_emb",
                                                 "RotaryEmbedding",
                                                 "CosSinRoPE",
                                                 "ComplexRoPE"};
  static constexpr Attribute attributes[] = {
      {"style", "\"half\"", "pairs are half: (i, i + R/2), or interleaved: (2i, 2i + 1)"},
      {"base_theta", "10000", "base of the wavelengths"},
      {"offset", "0", "position of the first token, where positions are not given"},
      {"sequence_dim", "-2", "the dimension that counts tokens; 0 in Megatron's [s, b, h, d]"},
      {"rotary_dim", "null", "leading channels that turn, the rest is copied; null: all"},
      {"frequencies", "null",
       "the angle of each pair of channels from one position to the next (Hugging Face: inv_freq); null: of "
       "base_theta and yarn"},
      {"frequencies_error", "null", "how far each may be off where they were read from a recording; null: 0"},
      {"yarn.factor", "null", "context extension s; null: no YaRN"},
      {"yarn.original_max_position", "4096", "context length of the pretraining"},
      {"yarn.beta_fast", "32", "turns within it above which wavelengths are kept"},
      {"yarn.beta_slow", "1", "turns within it below which they are stretched by s"},
      {"yarn.mscale", "1", "cos and sin are scaled by 0.1 mscale ln s + 1"},
      {"yarn.mscale_all_dim", "0", "and divided by 0.1 mscale_all_dim ln s + 1"}};
  static constexpr Arg args[] = {
      {"x", "A*,T,B*,C", Role::input},
      {.name = "positions", .shape = "T", .role = Role::index, .low = 0, .high = 64, .optional = true},
      {"grad_y", "A*,T,B*,C", Role::grad_output},
      {.name = "y", .shape = "A*,T,B*,C", .role = Role::output, .terms = "2"},
      {.name = "grad_x", .shape = "A*,T,B*,C", .role = Role::grad_input, .terms = "2"},
  };
  static constexpr Example examples[] = {
      {"A=1,T=11,B=,C=16", "", "positions"},
      {"A=2,T=5,B=,C=8", "style=\"interleaved\",rotary_dim=6,offset=3", "positions"},
      {"A=,T=4,B=2x2,C=6", "sequence_dim=0"},
      {"A=1,T=7,B=,C=64", "yarn.factor=40", "positions"}};
  // Bases: rope_theta of config.json.
  static constexpr Seen seen[] = {{"style", "\"half\"", "Hugging Face, Megatron-LM"},
                                  {"style", "\"interleaved\"", "Meta's and DeepSeek's own code"},
                                  {"base_theta", "10000", "RoFormer (arXiv:2104.09864), TeleChat3"},
                                  {"base_theta", "500000", "Llama 3"},
                                  {"base_theta", "1000000", "Mixtral, Qwen2, GLM-4.5"},
                                  {"base_theta", "50000", "Moonlight, Kimi K2"},
                                  {"base_theta", "100000", "DeepSeek-Coder"},
                                  {"base_theta", "150000", "gpt-oss"},
                                  {"base_theta", "5000000", "Yi"},
                                  {"base_theta", "8000000", "Command R"},
                                  {"base_theta", "10000000", "Qwen2.5-1M"},
                                  {"sequence_dim", "-2", "torch's [b, h, s, d]"},
                                  {"sequence_dim", "0", "Megatron-LM's [s, b, h, d]"},
                                  {"sequence_dim", "1", "flash-attention's [b, s, h, d]"},
                                  {"yarn.factor", "40", "DeepSeek-V3"},
                                  {"yarn.factor", "32", "Kimi K2"},
                                  {"yarn.mscale_all_dim", "1", "DeepSeek-V3, Kimi K2"}};
  static constexpr Solved solved[] = {
      {.attribute = "frequencies",
       .by = Solved::By::candidates,
       .how = "any table, as Llama 3.1's, LongRoPE's or another YaRN's: fitted to all heads and positions"}};
  static constexpr std::string_view by_one = "positions that are off by one",
                                    by_ranks = "positions that do not begin where the rank's tokens do";
  static constexpr Seen mistaken[] = {
      {"offset", "1", by_one},      {"offset", "-1", by_one},    {"offset", "2", by_ranks},
      {"offset", "4", by_ranks},    {"offset", "8", by_ranks},   {"offset", "16", by_ranks},
      {"offset", "32", by_ranks},   {"offset", "64", by_ranks},  {"offset", "128", by_ranks},
      {"offset", "256", by_ranks},  {"offset", "512", by_ranks}, {"offset", "1024", by_ranks},
      {"offset", "2048", by_ranks}, {"offset", "4096", by_ranks}};

  static std::vector<Candidate> candidates(const Attributes& seen_beside, const Recorded& call) {
    const bool is_forward = call.output == "y";
    const Tensor *x = call.input(is_forward ? "x" : "grad_y"), *positions = call.index("positions");
    if (x == nullptr || x->shape().size() < 2 || seen_beside.has("base_theta") ||
        seen_beside.has("yarn.factor") || seen_beside.has("yarn.mscale_all_dim"))
      return {};
    Attributes a = complete_attributes(ops::rope, seen_beside);
    const std::size_t t = axis(a.integer("sequence_dim"), x->shape().size());
    if (t + 1 == x->shape().size()) return {};
    std::vector<std::int64_t> at;
    for (std::int64_t n = 0; n < x->shape()[t]; ++n) at.push_back(a.integer("offset") + n);
    if (positions != nullptr) at = positions->indices();
    // Forward y = x turned; backward grad_y = grad_x turned.
    const Tensor &from = is_forward ? *x : call.result, &to = is_forward ? call.result : *x;
    std::vector<Candidate> tables;
    for (const std::int64_t R : rotated_channels(from, to)) {
      const auto fitted = fitted_turns(from, to, {t, R, a.text("style") == "half"}, at);
      if (!fitted) continue;
      Candidate c{{{"frequencies", fitted->frequencies}, {"frequencies_error", fitted->errors}},
                  "frequencies of the recording"};
      if (R != x->shape().back()) c.attributes.set("rotary_dim", static_cast<double>(R));
      // YaRN's 0.1 ln s + 1; what is no whole s leaves the lengths as they are.
      const double m = is_forward ? fitted->magnitude : 1 / fitted->magnitude;
      if (const double s = std::round(std::exp(10 * (m - 1))); s > 1 && std::isfinite(s))
        c.attributes.set("yarn.factor", s);
      tables.push_back(std::move(c));
    }
    return tables;
  }

  // The turns of a position are a table that heads and sequences share.
  static std::vector<std::int64_t> shared_roundings(const Shape& y, const Attributes& a) {
    std::vector<std::int64_t> turns;
    if (y.size() < 3 || y.back() == 0) return turns;
    const std::size_t t = axis(a.integer("sequence_dim"), y.size());
    const std::int64_t stride = strides_of(y)[t], C = y.back();
    for (std::int64_t i = 0; i < element_count(y); ++i) turns.push_back(i / stride % y[t] * C + i % C);
    return turns;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const std::size_t t = axis(a.integer("sequence_dim"), x.size());
    if (t + 1 == x.size()) throw Error("rope: sequence_dim is the last dimension, which holds the channels");
    const auto at = x.begin() + static_cast<std::ptrdiff_t>(t);
    d.set("A", Shape(x.begin(), at));
    d.set("T", *at);
    d.set("B", Shape(at + 1, x.end() - 1));
    d.set("C", x.back());
    d.set("R", a.has("rotary_dim") ? a.integer("rotary_dim") : x.back());
    if (d.at("R") % 2 != 0 || d.at("R") > x.back()) {
      throw Error("rope: {} of {} channels turn; expected an even number of them", d.at("R"), x.back());
    }
    for (const char* list : {"frequencies", "frequencies_error"}) {
      if (a.has(list) && std::ssize(a.list(list)) * 2 != d.at("R"))
        throw Error("rope: {} has {} numbers for {} channels that turn; expected one for each pair", list,
                    a.list(list).size(), d.at("R"));
    }
    if (a.text("style") != "half" && a.text("style") != "interleaved") {
      throw Error("rope: style is \"{}\"; expected half or interleaved", a.text("style"));
    }
  }

  // arXiv:2309.00071: where wavelengths begin and end to be stretched, in pairs of channels.
  static std::pair<double, double> yarn_ramp(const Attributes& a, double R) {
    const auto pair_with_turns = [&](double turns) {
      return R * std::log(a.real("yarn.original_max_position") / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(a.real("base_theta")));
    };
    const double low = std::max(std::floor(pair_with_turns(a.real("yarn.beta_fast"))), 0.0);
    const double high = std::min(std::ceil(pair_with_turns(a.real("yarn.beta_slow"))), R - 1);
    return {low, high == low ? high + .001 : high};
  }

  // 0.1 mscale ln s + 1
  template <class T>
  static T magnitude(double s, double mscale) {
    return s <= 1 ? T(1) : constant<T>(.1) * constant<T>(mscale) * log(constant<T>(s)) + T(1);
  }

  // One angle per pair of channels and unit of position.
  template <class T>
  static std::vector<T> frequencies(const Attributes& a, std::int64_t R) {
    std::vector<T> frequency;
    if (a.has("frequencies")) {
      for (const double f : a.list("frequencies")) frequency.push_back(constant<T>(f));
      if constexpr (std::is_same_v<T, Bound>) {
        for (std::size_t i = 0; a.has("frequencies_error") && i < frequency.size(); ++i)
          frequency[i].error += a.list("frequencies_error")[i];
      }
      return frequency;
    }
    const T theta = constant<T>(a.real("base_theta")), width = number<T>(R);
    for (std::int64_t i = 0; i < R; i += 2) frequency.push_back(T(1) / pow(theta, number<T>(i) / width));
    if (!a.has("yarn.factor")) return frequency;
    const auto [low, high] = yarn_ramp(a, static_cast<double>(R));
    const T stretch = constant<T>(a.real("yarn.factor"));
    for (std::size_t i = 0; i < frequency.size(); ++i) {
      const T ramp = constant<T>(std::clamp((static_cast<double>(i) - low) / (high - low), 0., 1.));
      frequency[i] = frequency[i] / stretch * ramp + frequency[i] * (T(1) - ramp);
    }
    return frequency;
  }

  // Turns `from` into `to`, by the angle (+1) or back (-1).
  template <class T>
  static void turn(Tensors<T>& t, const Dims& d, const Attributes& attr, View<T> from, View<T> to, int sign) {
    const std::int64_t A = d.at("A"), B = d.at("B"), C = d.at("C"), R = d.at("R");
    const std::vector<T> frequency = frequencies<T>(attr, R);
    const std::int64_t tokens = d.at("T"), offset = attr.integer("offset");
    const bool half = attr.text("style") == "half";
    const auto positions = t.optional_index("positions");
    T scale = T(1);
    if (attr.has("yarn.factor")) {
      const double s = attr.real("yarn.factor");
      scale = magnitude<T>(s, attr.real("yarn.mscale")) / magnitude<T>(s, attr.real("yarn.mscale_all_dim"));
    }
    for (std::int64_t n = 0; n < tokens; ++n) {
      const T position = number<T>(positions ? positions(n) : offset + n);
      for (std::int64_t p = 0; p < R / 2; ++p) {
        const T angle = position * frequency[static_cast<std::size_t>(p)];
        const T c = stored(cos(angle) * scale), s = stored((sign > 0 ? sin(angle) : -sin(angle)) * scale);
        const std::int64_t i = half ? p : 2 * p, j = half ? p + R / 2 : 2 * p + 1;
        for (std::int64_t a = 0; a < A; ++a) {
          for (std::int64_t b = 0; b < B; ++b) {
            const T x = from(a, n, b, i), y = from(a, n, b, j);
            to(a, n, b, i) = stored(x * c) - stored(y * s);
            to(a, n, b, j) = stored(y * c) + stored(x * s);
          }
        }
      }
      for (std::int64_t a = 0; a < A; ++a) {
        for (std::int64_t b = 0; b < B; ++b) {
          for (std::int64_t c = R; c < C; ++c) to(a, n, b, c) = from(a, n, b, c);
        }
      }
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    turn(t, d, a, t["x"], t["y"], 1);
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    turn(t, d, a, t["grad_y"], t["grad_x"], -1);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rope = describe<Rope>();
}

}  // namespace assay
