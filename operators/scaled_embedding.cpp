#include "assay/operators/engine/embedded_rows.h"

namespace assay {
namespace {

struct ScaledEmbedding {
  static constexpr std::string_view name = "scaled_embedding";
  static constexpr std::string_view math =
      "y_n = scale weight[index_n]; grad_weight_v = scale times the sum of the grad_y_n with index_n = v";
  static constexpr std::string_view source =
      "arXiv:1706.03762 sec. 3.4; Hugging Face transformers modeling_gemma2.py, modeling_bart.py";
  // Classes of Hugging Face transformers, whose tables are tied: their weights are recorded elsewhere.
  static constexpr std::string_view aliases[] = {"Gemma2TextScaledWordEmbedding",
                                                 "Gemma3TextScaledWordEmbedding",
                                                 "Gemma3nTextScaledWordEmbedding",
                                                 "Gemma4TextScaledWordEmbedding",
                                                 "Gemma4UnifiedTextScaledWordEmbedding",
                                                 "GemmaTextScaledWordEmbedding",
                                                 "VaultGemmaTextScaledWordEmbedding",
                                                 "DiffusionGemmaTextScaledWordEmbedding",
                                                 "BartScaledWordEmbedding",
                                                 "MBartScaledWordEmbedding",
                                                 "PLBartScaledWordEmbedding",
                                                 "BigBirdPegasusScaledWordEmbedding",
                                                 "PegasusXScaledWordEmbedding",
                                                 "BlenderbotScaledWordEmbedding",
                                                 "M2M100ScaledWordEmbedding",
                                                 "NllbMoeScaledWordEmbedding",
                                                 "SeamlessM4TScaledWordEmbedding",
                                                 "SeamlessM4Tv2ScaledWordEmbedding",
                                                 "TrOCRScaledWordEmbedding",
                                                 "XGLMScaledWordEmbedding",
                                                 "BioGptScaledWordEmbedding",
                                                 "MiniCPM3ScaledWordEmbedding",
                                                 "PPFormulaNetScaledWordEmbedding"};
  static constexpr Attribute attributes[] = {{"scale", "1", "often the root of C"}, padding_attribute};
  static constexpr Arg args[] = {
      {"weight", "V,C", Role::param},
      {.name = "index", .shape = "N*", .role = Role::index, .indexes = "V"},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "1"},
      {.name = "grad_weight", .shape = "V,C", .role = Role::grad_input, .terms = "N"},
  };
  static constexpr Example examples[] = {{"V=7,C=5,N=6", "scale=2.25"}, {"V=4,C=3,N=2x9"}};
  static constexpr Solved solved[] = {{.attribute = "scale", .by = Solved::By::factor}};
  static constexpr bool makes_shares = true;

  static void bind(Dims&, InputShapes inputs, const Attributes& a) {
    padding_row(name, shape_of_input(inputs, "weight")[0], a);
  }

  // Frameworks keep the scale as a tensor of the weight's dtype.
  template <class T>
  static T scale(const Attributes& a) {
    return stored(constant<T>(a.real("scale")));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto w = t["weight"], y = t["y"];
    const auto index = t.index("index");
    const T s = scale<T>(a);
    for (std::int64_t n = 0; n < d.at("N"); ++n) {
      for (std::int64_t c = 0; c < d.at("C"); ++c) y(n, c) = w(index(n), c) * s;
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto g = t["grad_y"], grad_w = t["grad_weight"];
    const std::int64_t V = d.at("V");
    const auto tokens = tokens_of_rows(t.slot("index").indices, V, padding_row(name, V, a));
    const T s = scale<T>(a);
    for (std::int64_t v = 0; v < V; ++v) {
      const auto& hit = tokens[static_cast<std::size_t>(v)];
      for (std::int64_t c = 0; c < d.at("C"); ++c) {
        grad_w(v, c) = sum_in_memory<T>(
            std::ssize(hit), [&](auto i) { return stored(g(hit[static_cast<std::size_t>(i)], c) * s); });
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator scaled_embedding = describe<ScaledEmbedding>();
}

}  // namespace assay
