#include <cmath>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

// N* positions, R channels that turn. The table that rope may be given: Hugging Face makes it once for all
// layers, of the positions alone.
struct RotaryEmbedding {
  static constexpr std::string_view name = "rotary_embedding";
  static constexpr std::string_view math =
      "cos_ni = scaling cos(position_n theta^(-2p/R)), sin likewise, p = i mod R/2 (half) or i/2 "
      "(interleaved)";
  static constexpr std::string_view source =
      "arXiv:2104.09864 eq. 34; Hugging Face transformers LlamaRotaryEmbedding";
  static constexpr std::string_view aliases[] = {"LlamaRotaryEmbedding", "MixtralRotaryEmbedding",
                                                 "Qwen3MoeRotaryEmbedding"};
  static constexpr Attribute attributes[] = {
      {"rotary_dim", "null", "R"},
      {"base_theta", "10000", "base of the wavelengths"},
      {"scaling", "1", "factor of both tables (YaRN's attention factor)"},
      {"style", "\"half\"", "channel i belongs to the pair i mod R/2 (half) or i/2 (interleaved)"}};
  static constexpr Arg args[] = {
      {.name = "position_ids", .shape = "N*", .role = Role::index, .low = 0, .high = 64},
      {.name = "x", .shape = "X*", .role = Role::input, .optional = true},  // whose dtype the tables get
      {.name = "cos", .shape = "N*,R", .role = Role::output, .terms = "1"},
      {.name = "sin", .shape = "N*,R", .role = Role::output, .terms = "1"},
  };
  static constexpr Example examples[] = {{"N=2x5", "rotary_dim=8", "x"},
                                         {"N=7,X=3", "rotary_dim=6,style=\"interleaved\",base_theta=500000"}};
  static constexpr Seen seen[] = {
      {"base_theta", "10000", "RoFormer (arXiv:2104.09864), Llama, Qwen3-MoE by default"},
      {"base_theta", "500000", "Llama 3"},
      {"base_theta", "1000000", "Mixtral, Qwen2, Qwen3"},
      {"base_theta", "10000000", "Qwen2.5-1M"},
      {"style", "\"interleaved\"", "GPT-J, Cohere"}};
  static constexpr Solved solved[] = {
      {.attribute = "base_theta", .by = Solved::By::bisection, .low = 1e2, .high = 1e9}};
  static constexpr RecordedAs recorded_as[] = {{"cos", "0"}, {"sin", "1"}};

  static void infer(Recorded& call) {
    const Shape& table = call.result.shape();
    if (!table.empty()) call.attributes.set("rotary_dim", static_cast<double>(table.back()));
  }

  static void bind(Dims& d, InputShapes, const Attributes& a) {
    if (!a.has("rotary_dim") || a.integer("rotary_dim") < 0 || a.integer("rotary_dim") % 2 != 0)
      throw Error("rotary_embedding: attribute 'rotary_dim' is missing, below 0 or odd");
    if (a.integer("rotary_dim") > most_output_elements)  // of no position, too
      throw Error("rotary_embedding: rotary_dim is {}; expected at most {}", a.integer("rotary_dim"),
                  most_output_elements);
    if (a.text("style") != "half" && a.text("style") != "interleaved")
      throw Error("rotary_embedding: style is \"{}\"; expected half or interleaved", a.text("style"));
    d.set("R", a.integer("rotary_dim"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t N = d.at("N"), R = d.at("R");
    const bool half = a.text("style") == "half";
    const T theta = constant<T>(a.real("base_theta")), scaling = constant<T>(a.real("scaling"));
    const auto position = t.index("position_ids");
    const auto c = t["cos"], s = t["sin"];
    for (std::int64_t i = 0; i < R; ++i) {
      const std::int64_t pair = half ? i % (R / 2) : i / 2;
      const T frequency = T(1) / pow(theta, number<T>(2 * pair) / number<T>(R));
      for (std::int64_t n = 0; n < N; ++n) {
        const T angle = number<T>(position(n)) * frequency;
        c(n, i) = stored(cos(angle)) * scaling;
        s(n, i) = stored(sin(angle)) * scaling;
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rotary_embedding = describe<RotaryEmbedding>();
}

}  // namespace assay
