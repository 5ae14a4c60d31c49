#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/router.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// N* tokens, E experts, K = top_k; with kind sequence the logits are [T, B*, E], T tokens of B sequences, and
// the loss is the mean of theirs ("tokens": of one loss). n_e counts the choices of expert e: the K largest
// logits, without bias and groups, or `index`. It has no gradient.
// Over a group of R ranks n is group_tokens_per_expert, P stays the rank's own; the denominator is
//   micro_batch:          (R N)^2: the ranks' losses add up to that of all (Megatron-LM over tp and cp, and
//                         with n over the micro-batches too its global_aux_loss)
//   ep_group, dp_group:   R N^2: each rank's loss is near the coefficient, and is averaged (Pangu)
struct MoeAuxLoss {
  static constexpr std::string_view name = "moe_aux_loss";
  static constexpr std::string_view math =
      "loss = coefficient E / (K tokens^2) sum_e n_e P_e, P_e = sum_t scores_te, n_e the tokens that choose "
      "e";
  static constexpr std::string_view source =
      "arXiv:2101.03961 eq. 4 to 6; sequence arXiv:2412.19437 eq. 17 to 20; groups arXiv:2505.04519 sec. 3.1";
  static constexpr std::string_view aliases[] = {"switch_load_balancing_loss_func"};
  static constexpr Attribute attributes[] = {
      {"top_k", "null", "K: experts of a token"},
      {"kind", "\"micro_batch\"", "the tokens that n counts: sequence, micro_batch, ep_group or dp_group"},
      {"score", "\"softmax\"", "softmax, or sigmoid divided by its sum over the experts"},
      {"coefficient", "1", "factor of the loss"},
      {"group_size", "1", "R: ranks behind group_tokens_per_expert"}};
  static constexpr Arg args[] = {
      {"logits", "N*,E", Role::input, -4, 4},
      {.name = "index", .shape = "N*,K", .role = Role::index, .optional = true, .indexes = "E"},
      {.name = "group_tokens_per_expert",
       .shape = "E",
       .role = Role::input,
       .low = 0,
       .high = 9,
       .optional = true},
      {.name = "grad_y", .shape = "", .role = Role::grad_output, .optional = true},
      {.name = "loss", .shape = "", .role = Role::output, .terms = "N E"},
      {.name = "tokens_per_expert", .shape = "B*,E", .role = Role::output, .exact = Exact::value},
      {.name = "grad_logits", .shape = "N*,E", .role = Role::grad_input, .terms = "E"},
  };
  static constexpr Example examples[] = {
      {"N=5,E=3,K=2", "top_k=2", "index,group_tokens_per_expert"},
      {"N=4x2,E=3,K=1", "top_k=1,kind=\"sequence\",score=\"sigmoid\",coefficient=0.001",
       "group_tokens_per_expert,grad_y"},
      {"N=6,E=4,K=2", "top_k=2,kind=\"ep_group\",group_size=3", "index"}};
  static constexpr Seen seen[] = {{"kind", "\"sequence\"", "DeepSeek-V3"},
                                  {"score", "\"sigmoid\"", "DeepSeek-V3"}};
  static constexpr RecordedAs recorded_as[] = {{"index", "index", made_around},
                                               {"index", "indices", made_around},
                                               {"index", "2", made_around}};  // Hugging Face's routers
  static constexpr Rows rows = Rows::together;
  static constexpr bool regularizes = true;

  // The loss sees its tokens by sequence; the choice was recorded as one list of tokens.
  static void infer(Recorded& call) {
    const Tensor *logits = call.input("logits"), *index = call.index("index");
    if (index == nullptr || index->shape().empty()) return;
    const std::int64_t K = index->shape().back();
    call.attributes.set("top_k", static_cast<double>(K));
    if (logits == nullptr || logits->shape().empty()) return;
    Shape by_sequence = logits->shape();
    by_sequence.back() = K;
    if (element_count(by_sequence) != index->size()) return;
    for (NamedTensor& input : call.inputs) {
      if (input.name == "index") input.tensor = input.tensor.reshaped(by_sequence);
    }
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& logits = shape_of_input(inputs, "logits");
    const std::string &kind = a.text("kind"), &score = a.text("score");
    if (kind != "sequence" && kind != "micro_batch" && kind != "ep_group" && kind != "dp_group") {
      throw Error("moe_aux_loss: kind is \"{}\"; expected sequence, micro_batch, ep_group or dp_group", kind);
    }
    if (score != "softmax" && score != "sigmoid") {
      throw Error("moe_aux_loss: score is \"{}\"; expected softmax or sigmoid", score);
    }
    const bool sequence = kind == "sequence";
    if (logits.size() < (sequence ? 2u : 1u)) {
      throw Error("moe_aux_loss: logits have shape {}; expected {}", to_string(logits),
                  sequence ? "[T, B, E]" : "[N, E]");
    }
    if (!a.has("top_k")) throw Error("moe_aux_loss: attribute 'top_k' is missing");
    const std::int64_t K = a.integer("top_k"), R = a.integer("group_size");
    if (K < 1 || K > logits.back()) throw Error("moe_aux_loss: top_k is {} of {} experts", K, logits.back());
    const bool grouped = find_input(inputs, "group_tokens_per_expert") != nullptr;
    if (R < 1 || (R > 1 && !grouped)) {
      throw Error("moe_aux_loss: group_size is {}; above 1 it needs 'group_tokens_per_expert'", R);
    }
    if (grouped ? sequence : kind == "ep_group" || kind == "dp_group") {
      throw Error("moe_aux_loss: kind {} goes {} 'group_tokens_per_expert'", kind,
                  grouped ? "without" : "with");
    }
    d.set("K", K);
    d.set("B", sequence ? Shape(logits.begin() + 1, logits.end() - 1) : Shape());
    d.set("tokens", sequence ? logits[0] : element_count(Shape(logits.begin(), logits.end() - 1)));
  }

  // The scores of one token, and of sigmoid what they were divided by.
  template <class T>
  struct Scores {
    Scores(const View<T>& z, std::int64_t n, std::int64_t E, bool of_sigmoid) {
      if (!of_sigmoid) {
        values = softmax_of<T>(E, [&](std::int64_t e) -> const T& { return z(n, e); });
        return;
      }
      for (std::int64_t e = 0; e < E; ++e) values.push_back(assay::sigmoid(z(n, e)));
      total = sum<T>(E, [&](auto e) { return (*this)[e]; }) + constant<T>(least_total);
      for (T& s : values) s /= total;
    }
    const T& operator[](std::int64_t e) const { return values[static_cast<std::size_t>(e)]; }
    std::vector<T> values;
    T total = T(1);
  };

  // n_e of each sequence as the loss uses it: [B, E]. A loss that chooses again, by scores that were stored,
  // may take another of two experts that became equal by it.
  template <class T>
  static std::vector<T> choices(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const bool is_given = t.has("group_tokens_per_expert");
    std::vector<T> used = t.slot(is_given ? "group_tokens_per_expert" : "tokens_per_expert").values;
    if constexpr (std::is_same_v<T, Bound>) {
      const double u = ErrorScope::current().stored_roundoff;
      const std::int64_t N = d.at("N"), E = d.at("E"), K = d.at("K"), B = d.at("B");
      for (std::int64_t n = 0; n < N && u > 0 && !is_given && K < E; ++n) {
        const Scores<T> s(t["logits"], n, E, a.text("score") == "sigmoid");
        const auto order = sorted_positions(E, true, [&](std::int64_t e) -> const T& { return s[e]; });
        const auto at = [&](std::int64_t k) { return s[order[static_cast<std::size_t>(k)]].value; };
        const double first_out = at(K), last_in = at(K - 1), equal = 2 * u * last_in;
        if (!(last_in - first_out <= equal)) continue;
        for (std::int64_t e = 0; e < E; ++e) {
          if (s[e].value <= first_out + equal && s[e].value >= last_in - equal)
            used[static_cast<std::size_t>(n % B * E + e)].error += 1;
        }
      }
    }
    return used;
  }

  // coefficient E / (K tokens^2 B)
  template <class T>
  static T scale(const Dims& d, const Attributes& a) {
    const T tokens = number<T>(d.at("tokens")), R = number<T>(a.integer("group_size"));
    const T over_group = a.text("kind") == "micro_batch" ? R * R : R;
    return constant<T>(a.real("coefficient")) * number<T>(d.at("E")) /
           (number<T>(d.at("K")) * tokens * tokens * over_group * number<T>(d.at("B")));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto z = t["logits"], counts = t["tokens_per_expert"];
    const auto index = t.optional_index("index");
    const std::int64_t N = d.at("N"), E = d.at("E"), K = d.at("K"), B = d.at("B");
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(B * E), 0);
    std::vector<Scores<T>> scores;
    for (std::int64_t n = 0; n < N; ++n) {
      scores.emplace_back(z, n, E, a.text("score") == "sigmoid");
      const auto order = sorted_positions(E, true, [&](std::int64_t e) -> const T& { return z(n, e); });
      for (std::int64_t k = 0; k < K; ++k) {
        const std::int64_t e = index ? index(n, k) : order[static_cast<std::size_t>(k)];
        ++chosen[static_cast<std::size_t>(n % B * E + e)];
      }
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) counts.data()[i] = number<T>(chosen[i]);
    const std::vector<T> used = choices(t, d, a);
    const T total = sum<T>(N * E, [&](auto i) {
      return scores[static_cast<std::size_t>(i / E)][i % E] * used[static_cast<std::size_t>(i % (B * E))];
    });
    t["loss"]() = scale<T>(d, a) * total;
  }

  // With G_e = scale n_e: softmax s (G - sum s G); sigmoid (G - sum s G) / total sigma (1 - sigma).
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto z = t["logits"], grad = t["grad_logits"], g = t.optional("grad_y");
    const std::int64_t N = d.at("N"), E = d.at("E"), B = d.at("B");
    const bool of_sigmoid = a.text("score") == "sigmoid";
    const T upstream = (g ? g() : T(1)) * scale<T>(d, a);
    const std::vector<T> used = choices(t, d, a);
    for (std::int64_t n = 0; n < N; ++n) {
      const auto chosen = [&](std::int64_t e) -> const T& {
        return used[static_cast<std::size_t>(n % B * E + e)];
      };
      const Scores<T> s(z, n, E, of_sigmoid);
      const T inner = sum<T>(E, [&](auto e) { return s[e] * chosen(e); });
      // What is not fused stores the gradient of P, that of its addends, and the scores.
      const auto part = [&](std::int64_t e) { return stored(stored(upstream * chosen(e))); };
      const T inner_part = stored(sum<T>(E, [&](auto e) { return stored(s[e]) * part(e); }));
      for (std::int64_t e = 0; e < E; ++e) {
        const T slope = at_once_or<T>([&] { return upstream * (chosen(e) - inner); },
                                      [&] { return part(e) - inner_part; });
        if (!of_sigmoid) {
          grad(n, e) = stored(s[e]) * slope;
          continue;
        }
        const T complement = without_cancellation<T>([&] { return sigmoid(-z(n, e)); },
                                                     [&] { return T(1) - sigmoid(z(n, e)); });
        grad(n, e) = slope * s[e] * complement;
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator moe_aux_loss = describe<MoeAuxLoss>();
}

}  // namespace assay
