#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/router.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// N* tokens, E experts, K = top_k of them chosen. The order of choice is by score + expert_bias, the weights
// are of the scores alone; selection has no gradient. With groups, experts outside of the kept ones cannot be
// chosen. selection_gap: how much the last expert chosen is ahead of the next that could have been; where it
// is within twice the error of a score, either choice is right. It does not look at the choice of groups.
// `chosen` is a choice made elsewhere, in place of this one: where it is another, the gap is below 0, also
// where its groups are others.
//
// SparseMixer-v2 (arXiv:2409.12136) makes one choice after the other: the weight of each is its share of a
// softmax over what was not chosen before and is not masked, as those are that are more than 2 jitter of
// their size behind the best. In training it draws among them: then the gap is how far the choice that is
// nearest to its mask is from it, and of a weight that is not the largest of its softmax only a third goes
// forward three times of four (Heun's third-order method). Gradients are of the whole.
struct RouterTopK {
  static constexpr std::string_view name = "router_topk";
  static constexpr std::string_view math =
      "index = the top_k of score + expert_bias, weights = scaling score / sum of the chosen scores";
  static constexpr std::string_view source =
      "arXiv:2412.19437 eq. 12 to 16 (sigmoid, bias, groups); arXiv:2101.03961 eq. 1 (softmax); Megatron-LM "
      "topk_routing_with_score_function; Hugging Face transformers sparsemixer (Phi-3.5-MoE), Llama4Router";
  static constexpr std::string_view aliases[] = {"topk_routing_with_score_function", "TopKRouter",
                                                 "npu_moe_gating_top_k", "npu_moe_gating_top_k_softmax",
                                                 "MoeGatingTopKSoftmax"};
  static constexpr Attribute attributes[] = {
      {"top_k", "null", "K: experts of a token"},
      {"score", "\"softmax\"",
       "softmax or sigmoid of the logits, sparsemixer, or given: the logits are scores"},
      {"pre_softmax", "true",
       "softmax of all logits, then the choice; false: choice by the logits, then softmax of the chosen"},
      {"normalize", "true",
       "divide by the sum of the chosen scores; Megatron-LM does for sigmoid and top_k > 1, DeepSeek-V3 for "
       "sigmoid"},
      {"scaling", "1", "factor of the weights"},
      {"groups", "null", "[n, kept]: experts in n groups of neighbours, of which the best are kept"},
      {"group_top", "null",
       "a group's score is the sum of so many of its best; null: top_k / kept (Megatron-LM); DeepSeek-V3 and "
       "HF: 2"},
      {"selection_bias", "null", "whether expert_bias takes part in the choice; null: where it is given"},
      {"jitter", "0.01",
       "of sparsemixer: half of how far behind the best, of its size, a logit is not masked"},
      {"drawn", "false", "whether sparsemixer draws its choice, as in training"},
      {"forwarded", "1", "share of a drawn weight that goes forward: 1, or 0.3333 three times of four"},
      {"dense", "false", "weights of all E experts, 0 of those that were not chosen"},
      {"stored_scores", "false",
       "scores are stored in the logits' dtype before the choice: those of bfloat16 that are near are "
       "equal"}};
  static constexpr Arg args[] = {
      {"logits", "N*,E", Role::input, -4, 4},
      {.name = "expert_bias", .shape = "E", .role = Role::param, .low = -.25, .high = .25, .optional = true},
      {.name = "chosen", .shape = "N*,K", .role = Role::index, .optional = true, .indexes = "E"},
      {"grad_weights", "N*,K", Role::grad_output},
      {.name = "weights", .shape = "N*,K", .role = Role::output, .terms = "normalised"},
      {.name = "index", .shape = "N*,K", .role = Role::output_index, .gap = "selection_gap"},
      {.name = "selection_gap", .shape = "N*", .role = Role::output, .terms = "scored"},
      {.name = "grad_logits", .shape = "N*,E", .role = Role::grad_input, .terms = "E"},
  };
  static constexpr Example examples[] = {
      {"N=3,E=6", "top_k=2", "expert_bias,chosen"},
      {"N=2x2,E=5", "top_k=3,normalize=false,scaling=2.5", "expert_bias,chosen"},
      {"N=4,E=7", "top_k=2,pre_softmax=false", "chosen"},
      {"N=3,E=8", "top_k=3,score=\"sigmoid\",groups=[4,2],group_top=2,scaling=1.5", "chosen"},
      {"N=5,E=4", "top_k=1,score=\"sigmoid\",normalize=false", "expert_bias,chosen"},
      {"N=4,E=6", "top_k=2,score=\"given\",normalize=false", "expert_bias,chosen"},
      {"N=6,E=4,K=1", "top_k=1,normalize=false", "expert_bias"},  // of one, any choice is free of duplicates
      {"N=5,E=6", "top_k=2,score=\"sparsemixer\",jitter=0.5", "expert_bias,chosen"},
      {"N=4,E=5", "top_k=2,score=\"sigmoid\",normalize=false,dense=true", "expert_bias,chosen"}};
  static constexpr Seen drawn = {"forwarded", "0.3333", "Phi-3.5-MoE"};
  static constexpr Seen seen[] = {{"score", "\"softmax\"", "Mixtral"},
                                  {"score", "\"sigmoid\"", "DeepSeek-V3"},
                                  {"score", "\"given\"", "torchtitan: scores of another module"},
                                  {"pre_softmax", "false", "Megatron-LM by default, gpt-oss"},
                                  {"normalize", "false", "DeepSeek-V2, Qwen1.5-MoE"},
                                  {"scaling", "2.5", "DeepSeek-V3"},
                                  {"stored_scores", "true", "torchtitan without autocast"}};
  static constexpr Seen mistaken[] = {{"groups", "null", "a limit to groups that is left out"},
                                      {"group_top", "1", "the best expert of a group alone"},
                                      {"group_top", "2", "DeepSeek-V3's two best"},
                                      {"group_top", "null", "Megatron-LM's top_k / kept best"}};
  static constexpr Solved solved[] = {
      {.attribute = "scaling", .by = Solved::By::factor},
      {.attribute = "groups",
       .by = Solved::By::candidates,
       .how =
           "every number of groups and of kept ones, by their two best (DeepSeek-V3) or their top_k / kept "
           "(Megatron-LM)"},
      {.attribute = "drawn",
       .by = Solved::By::candidates,
       .how = "of sparsemixer with the jitter of Phi-3.5-MoE, in evaluation and in training"}};
  static constexpr RecordedAs recorded_as[] = {
      {"logits", "0"},  // Hugging Face's routers return (logits, weights, index)
      {"weights", "1"},
      {"index", "2"},
      {"weights", "probs"},
      {"index", "indices"},
      {"expert_bias", "e_score_correction_bias"},          // Hugging Face, where its router is given it
      {"expert_bias", "e_score_correction_bias", "gate"},  // with the projection to logits
      {"expert_bias", "e_score_correction_bias", "moe_statics"},  // ERNIE 4.5
      {"chosen", "index", made_around}};

  static constexpr MadeWithin made_within[] = {{"logits", "linear"}};

  // Programs choose between the gate, a projection, and the module of the experts.
  static constexpr std::string_view functional_inputs[] = {"logits", "expert_bias"};
  static constexpr bool never_negative = true;
  // Of several tokens: the numbers of one row may be those of another, scaled, by accident.
  static bool may_make(InputShapes inputs, const Shape& weights) {
    const Shape& logits = shape_of_input(inputs, "logits");
    if (weights.empty() || logits.empty() || weights.back() < 1 || weights.back() >= logits.back())
      return false;
    const std::int64_t rows = element_count(weights) / weights.back();
    return rows > 1 && rows * logits.back() == element_count(logits);
  }

  // ERNIE 4.5's "statics" add a bias in a module of their own.
  static constexpr bool has_parts = true;

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    return arg.name.ends_with("weights") && a.flag("dense") ? "N*,E" : arg.shape;
  }

  static void infer(Recorded& call) {
    for (NamedTensor& input : call.inputs) {  // ERNIE 4.5 has a row of it
      if (input.name == "expert_bias" && input.tensor.shape().size() == 2 &&
          input.tensor.shape().front() == 1)
        input.tensor = input.tensor.reshaped({input.tensor.size()});
    }
    const Tensor *chosen = call.index("chosen"), *logits = call.input("logits");
    if (chosen == nullptr && logits != nullptr && is_dense(call, *logits)) {
      call.attributes.set("dense", true);
      call.inputs.push_back({"chosen", shown_choice(call.result, *logits)});
      chosen = &call.inputs.back().tensor;
    }
    const Shape& tokens = chosen != nullptr ? chosen->shape() : call.result.shape();
    if (!tokens.empty()) call.attributes.set("top_k", static_cast<double>(tokens.back()));
  }

  // Whether weights are of all experts: some are 0, in every row.
  static bool is_dense(const Recorded& call, const Tensor& logits) {
    const Tensor* given = call.input("grad_weights");
    const Shape& weights = given != nullptr ? given->shape() : call.result.shape();
    if (!is_float(call.result.dtype()) || weights.empty() || logits.shape().empty() ||
        weights.back() != logits.shape().back() || call.result.size() != logits.size())
      return false;
    return std::ranges::count(zeros_of_rows(call.result, weights.back()), 0) == 0;
  }

  // The choice shows score and groups; the weights of sparsemixer show that they are its.
  static std::vector<Candidate> candidates(const Attributes& seen_beside, const Recorded& call) {
    std::vector<Candidate> all;
    const Tensor* logits = call.input("logits");
    if (!seen_beside.values().empty() || logits == nullptr || logits->shape().empty()) return all;
    const bool chooses_all = call.index("chosen") == nullptr && !call.result.shape().empty() &&
                             call.result.shape().back() == logits->shape().back();
    for (const bool drawn : {false, true}) {
      if (!chooses_all)  // a softmax for each choice: of all it would be their square
        all.push_back({{{"score", "sparsemixer"}, {"drawn", drawn}},
                       fmt::format("score = \"sparsemixer\"{}", drawn ? ", drawn" : "")});
    }
    if (call.output != "index" && call.output != "selection_gap") return all;
    const std::int64_t E = logits->shape().back();
    for (std::int64_t n = 2; n < E; ++n) {
      for (std::int64_t kept = 1; E % n == 0 && kept < n; ++kept) {
        for (const char* score : {"softmax", "sigmoid"}) {
          for (const bool by_two : {true, false}) {
            Candidate c;
            c.attributes = {
                {"score", score},
                {"groups", std::vector<double>{static_cast<double>(n), static_cast<double>(kept)}}};
            if (by_two) c.attributes.set("group_top", 2.0);
            c.text = fmt::format("score = \"{}\", {} of {} groups{}", score, kept, n,
                                 by_two ? ", by their two best" : "");
            all.push_back(std::move(c));
          }
        }
      }
    }
    return all;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& logits = shape_of_input(inputs, "logits");
    const std::int64_t E = logits.back();
    if (!a.has("top_k")) throw Error("router_topk: attribute 'top_k' is missing");
    const std::int64_t K = a.integer("top_k");
    if (K < 1 || K > E) throw Error("router_topk: top_k is {} of {} experts", K, E);
    const std::string& score = a.text("score");
    if (score != "softmax" && score != "sigmoid" && score != "sparsemixer" && score != "given") {
      throw Error("router_topk: score is \"{}\"; expected softmax, sigmoid, sparsemixer or given", score);
    }
    if (a.has("selection_bias") && a.flag("selection_bias") && find_input(inputs, "expert_bias") == nullptr) {
      throw Error("router_topk: selection_bias is true, but 'expert_bias' is missing");
    }
    // What would else be said of any multiple of its input.
    if (score == "given" && (K == E || a.flag("dense"))) {
      throw Error("router_topk: weights of all {} scores; expected fewer where they are given", E);
    }
    if (a.has("groups")) check_groups(E, K, a);
    d.set("K", K);
    const Kind k = kind(a);
    const bool of_all = k == Kind::softmax || k == Kind::sparsemixer;
    const bool is_own = k == Kind::sigmoid || k == Kind::given;
    d.set("normalised", of_all ? E : is_own && !a.flag("normalize") ? 1 : K);
    d.set("scored", k == Kind::softmax ? E : 1);
  }

  static void check_groups(std::int64_t E, std::int64_t K, const Attributes& a) {
    const std::vector<std::int64_t> groups = a.integers("groups");
    if (groups.size() != 2 || groups[0] < 1 || E % groups[0] != 0) {
      throw Error("router_topk: groups must be [n, kept] with n a divisor of the {} experts", E);
    }
    const std::int64_t n = groups[0], kept = groups[1], size = E / n;
    if (kept < 1 || kept > n || kept * size < K) {
      throw Error("router_topk: {} of {} groups of {} are kept; expected 1 to {} with at least {} experts",
                  kept, n, size, n, K);
    }
    if (group_top(a) < 1 || group_top(a) > size) {
      throw Error("router_topk: a group's score is the sum of {} of its {} experts", group_top(a), size);
    }
  }
  static std::int64_t group_top(const Attributes& a) {
    if (a.has("group_top")) return a.integer("group_top");
    return a.integer("top_k") / a.integers("groups")[1];
  }

  static std::optional<GroupLimit> groups(const Attributes& a) {
    if (!a.has("groups")) return {};
    return GroupLimit{a.integers("groups")[0], a.integers("groups")[1], group_top(a)};
  }

  // One token: its scores, and the experts chosen with their weights before the scaling.
  template <class T>
  struct Token {
    std::vector<T> scores;  // of all experts; logits where the softmax comes after the choice
    std::vector<std::int64_t> chosen;
    std::vector<T> weights;
    T total = T(1);                           // what the chosen scores were divided by
    std::vector<std::vector<T>> shares = {};  // sparsemixer's softmax of all experts, for each choice
    T gap = T(0);
    const T& score(std::int64_t e) const { return scores[static_cast<std::size_t>(e)]; }
    // Whether sparsemixer had another one to choose.
    bool is_drawn(std::int64_t k) const {
      return !shares.empty() &&
             std::ranges::count(shares[static_cast<std::size_t>(k)], T(0)) + 1 < std::ssize(scores);
    }
    const T& chosen_score(std::int64_t k) const { return score(chosen[static_cast<std::size_t>(k)]); }
  };

  enum class Kind { sigmoid, softmax, softmax_after, sparsemixer, given };
  static Kind kind(const Attributes& a) {
    if (a.text("score") == "sparsemixer") return Kind::sparsemixer;
    if (a.text("score") == "sigmoid") return Kind::sigmoid;
    if (a.text("score") == "given") return Kind::given;
    return a.flag("pre_softmax") ? Kind::softmax : Kind::softmax_after;
  }

  // The attributes, looked up once.
  struct Rule {
    explicit Rule(const Attributes& a)
        : kind(RouterTopK::kind(a)),
          normalize(a.flag("normalize")),
          ranks_by_bias(!a.has("selection_bias") || a.flag("selection_bias")),
          drawn(a.flag("drawn")),
          // Scores that were given are of the dtype in which programs go on.
          stores(a.flag("stored_scores") || kind == Kind::given),
          jitter(a.real("jitter")),
          groups(RouterTopK::groups(a)) {}
    template <class T>
    T kept(const T& x) const {
      return stores ? stored(x) : x;
    }
    Kind kind;
    bool normalize, ranks_by_bias, drawn, stores;
    double jitter;
    std::optional<GroupLimit> groups;
  };

  // @param given  the choice, if it was made elsewhere
  template <class T>
  static void choose(Token<T>& token, const std::vector<T>& ranking, std::int64_t K, const Rule& rule,
                     const std::vector<std::int64_t>& given) {
    T of_groups = T(1) / T(0);
    std::vector<std::int64_t> best = sorted_experts(ranking,
                                                    kept_experts(ranking, rule.groups, given, of_groups)),
                              others;
    token.chosen = given;
    if (given.empty()) token.chosen.assign(best.begin(), best.begin() + K);
    std::vector<bool> is_chosen(ranking.size());
    for (const std::int64_t e : token.chosen) is_chosen[static_cast<std::size_t>(e)] = true;
    std::ranges::copy_if(best, std::back_inserter(others),
                         [&](std::int64_t e) { return !is_chosen[static_cast<std::size_t>(e)]; });
    const auto at = [&](std::int64_t e) -> const T& { return ranking[static_cast<std::size_t>(e)]; };
    token.gap =
        others.empty() ? T(1) / T(0) : at(sorted_experts(ranking, token.chosen).back()) - at(others.front());
    if (of_groups < T(0) && of_groups < token.gap) token.gap = of_groups;
    // NaN is chosen first: where there is one, the rest is no choice to rely on.
    for (const T& r : ranking) {
      if (isnan(r)) token.gap = r;
    }
  }

  template <class T>
  static std::vector<std::int64_t> given_choice(Tensors<T>& t, std::int64_t K, std::int64_t n) {
    std::vector<std::int64_t> experts;
    const auto chosen = t.optional_index("chosen");
    for (std::int64_t k = 0; chosen && k < K; ++k) {
      if (std::ranges::find(experts, chosen(n, k)) != experts.end())
        throw Error("router_topk: 'chosen' gives token {} the expert {} twice", n, chosen(n, k));
      experts.push_back(chosen(n, k));
    }
    return experts;
  }

  template <class T>
  static Token<T> route(Tensors<T>& t, const Dims& d, const Rule& rule, std::int64_t n) {
    const auto logits = t["logits"], bias = t.optional("expert_bias");
    const std::int64_t E = d.at("E"), K = d.at("K");
    const auto z = [&](std::int64_t e) -> const T& { return logits(n, e); };
    Token<T> token;
    if (rule.kind == Kind::softmax) token.scores = softmax_of<T>(E, z);
    for (std::int64_t e = 0; e < E && rule.kind != Kind::softmax; ++e) {
      token.scores.push_back(rule.kind == Kind::sigmoid ? sigmoid(z(e)) : z(e));
    }
    for (T& score : token.scores) score = rule.kind == Kind::given ? score : rule.kept(score);
    std::vector<T> ranking = token.scores;
    if (bias && rule.ranks_by_bias) {
      for (std::int64_t e = 0; e < E; ++e) ranking[static_cast<std::size_t>(e)] += bias(e);
    }
    choose(token, ranking, K, rule, given_choice(t, K, n));
    const auto chosen = [&](std::int64_t k) -> const T& { return token.chosen_score(k); };
    if (rule.kind == Kind::sparsemixer) {
      const SparseMixer<T> mixed(token.scores, token.chosen, constant<T>(2 * rule.jitter));
      token.weights = mixed.weights;
      token.shares = mixed.shares;
      if (rule.drawn && !isnan(token.gap)) token.gap = mixed.room;
      return token;
    }
    if (rule.kind == Kind::softmax_after) {
      token.weights = softmax_of<T>(K, chosen);
      return token;
    }
    if (rule.normalize) token.total = rule.kept(sum<T>(K, chosen) + constant<T>(least_total));
    for (std::int64_t k = 0; k < K; ++k) {
      token.weights.push_back(rule.normalize ? rule.kept(chosen(k) / token.total) : chosen(k));
    }
    return token;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto weights = t["weights"], gap = t["selection_gap"];
    const auto index = t.output_index("index");
    const std::int64_t N = d.at("N"), K = d.at("K");
    const T scaling = constant<T>(a.real("scaling"));
    const T forwarded = constant<T>(a.real("forwarded"));
    const Rule rule(a);
    const bool dense = a.flag("dense"), drawn = rule.drawn && a.real("forwarded") != 1;
    for (std::int64_t n = 0; n < N; ++n) {
      const Token<T> token = route(t, d, rule, n);
      gap(n) = token.gap;
      for (std::int64_t k = 0; k < K; ++k) {
        const std::int64_t e = token.chosen[static_cast<std::size_t>(k)];
        index(n, k) = e;
        T& weight = weights(n, dense ? e : k);
        weight = token.weights[static_cast<std::size_t>(k)] * scaling;
        if (drawn && token.is_drawn(k)) weight = weight * forwarded;
      }
    }
  }

  // With D = scaling g of the chosen. Normalised weights w: grad_s = (D - sum w D) / total; sigmoid:
  // grad_z = grad_s s (1 - s); softmax: grad_z = s (grad_s - sum s grad_s), of normalised weights
  // w (D - sum w D), and nothing for the experts that were not chosen; of sparsemixer, which goes through all
  // shares p of each choice c, the sum of w D ([e = c] - p_e).
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto g = t["grad_weights"], logits = t["logits"], grad = t["grad_logits"];
    const std::int64_t N = d.at("N"), E = d.at("E"), K = d.at("K");
    const Rule rule(a);
    const bool normalize = rule.normalize, dense = a.flag("dense");
    const T scaling = constant<T>(a.real("scaling"));
    for (std::int64_t n = 0; n < N; ++n) {
      const Token<T> token = route(t, d, rule, n);
      const auto upstream = [&](std::int64_t k) {
        return g(n, dense ? token.chosen[static_cast<std::size_t>(k)] : k) * scaling;
      };
      const auto weight = [&](std::int64_t k) -> const T& {
        return token.weights[static_cast<std::size_t>(k)];
      };
      if (rule.kind == Kind::sparsemixer) {
        for (std::int64_t e = 0; e < E; ++e) {
          grad(n, e) = sum<T>(K, [&](auto k) {
            const T& share = token.shares[static_cast<std::size_t>(k)][static_cast<std::size_t>(e)];
            const T whole = stored(upstream(k) * weight(k)), taken = stored(whole * share);
            return token.chosen[static_cast<std::size_t>(k)] == e ? whole - taken : -taken;
          });
        }
        continue;
      }
      const auto kept = [&](const T& x) { return rule.kept(x); };
      const T inner = kept(sum<T>(K, [&](auto k) { return kept(weight(k) * upstream(k)); }));
      // As quotients have it in autograd, whose steps are stored: g / total - sum g (w / total).
      const T shared_slope =
          kept(sum<T>(K, [&](auto k) { return kept(kept(upstream(k)) * kept(weight(k) / token.total)); }));
      const auto slope = [&](std::int64_t k) {
        if (!normalize) return kept(upstream(k));
        return rule.stores ? kept(kept(upstream(k)) / token.total) - shared_slope
                           : (upstream(k) - inner) / token.total;
      };
      if (rule.kind == Kind::softmax) {
        const T shared = sum<T>(K, [&](auto k) { return token.chosen_score(k) * slope(k); });
        for (std::int64_t e = 0; e < E; ++e) {
          const auto usual = [&] { return -(token.score(e) * shared); };
          grad(n, e) = normalize ? without_cancellation<T>([] { return T(0); }, usual) : usual();
        }
        for (std::int64_t k = 0; k < K; ++k) {
          const auto usual = [&] { return token.chosen_score(k) * (slope(k) - shared); };
          grad(n, token.chosen[static_cast<std::size_t>(k)]) =
              normalize ? without_cancellation<T>([&] { return weight(k) * (upstream(k) - inner); }, usual)
                        : usual();
        }
        continue;
      }
      for (std::int64_t k = 0; k < K; ++k) {
        const std::int64_t e = token.chosen[static_cast<std::size_t>(k)];
        if (rule.kind == Kind::softmax_after) {
          grad(n, e) = weight(k) * (upstream(k) - inner);
        } else if (rule.kind == Kind::given) {
          grad(n, e) = slope(k);
        } else {
          const T& s = token.score(e);
          const T complement =
              without_cancellation<T>([&] { return sigmoid(-logits(n, e)); }, [&] { return T(1) - s; });
          grad(n, e) = slope(k) * s * complement;
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator router_topk = describe<RouterTopK>();
}

}  // namespace assay
