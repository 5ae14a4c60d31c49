#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::align {

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), or grouped-query attention (Ainslie 2023,
/// arXiv 2305.13245) of which multi-head attention is the case of as many groups as heads.
enum class AttentionKind : std::uint8_t { mla, gqa };

/// How a router turns logits into the scores of the chosen experts. `softmax_of_chosen`: of the logits that
/// top-k has chosen, Megatron's default; `softmax`: of all, before top-k; `sigmoid`: of each by itself.
enum class Score : std::uint8_t { softmax_of_chosen, softmax, sigmoid };

/// Where an expert's output gets its probability: between activation and second matmul, or after it.
enum class ProbabilityAt : std::uint8_t { activation, output };

/// Whom an expert keeps that may not take all of its tokens: those of the largest probabilities, or the
/// first.
enum class DropPolicy : std::uint8_t { probs, position };

/// Over what the balance of the experts is counted.
enum class BalanceLoss : std::uint8_t { none, sequence, micro_batch, ep_group, dp_group };

/// A mixture-of-experts transformer: what it computes, not how it is trained. Sizes are those of the full
/// model, whatever strategy cuts them.
struct Model {
  std::string name, source;
  std::int64_t layers = 0;        ///< without those of multi-token prediction
  std::int64_t dense_layers = 0;  ///< the first ones, without experts
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;  ///< rows of the embedding, padding included
  bool tied_embeddings = false;
  double norm_eps = 1e-6;
  bool sandwich_norm = false;  ///< also norms of what attention and feed-forward give
  std::int64_t dense_ffn = 0;  ///< intermediate size of the dense layers

  struct Attention {
    AttentionKind kind = AttentionKind::gqa;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0, head_dim = 0;  ///< of gqa
    bool qk_norm = false;                     ///< of gqa
    std::int64_t q_rank = 0;                  ///< of mla; 0: queries are not compressed
    std::int64_t kv_rank = 0;                 ///< of mla
    std::int64_t nope_dim = 0, rope_dim = 0;  ///< of mla: of a head's queries and keys
    std::int64_t value_dim = 0;               ///< of mla
    double latent_norm_eps = 0;               ///< of mla: of q_a_layernorm, kv_a_layernorm; 0: norm_eps
    std::int64_t query_dim() const { return kind == AttentionKind::mla ? nope_dim + rope_dim : head_dim; }
  } attention;

  struct Rope {
    double theta = 1e4;
    bool interleaved = false;  ///< pairs are neighbours, not halves
    double factor = 1;         ///< YaRN (arXiv 2309.00071); 1: none
    std::int64_t original_positions = 4096;
    double beta_fast = 32, beta_slow = 1, mscale = 1, mscale_all_dim = 0;
  } rope;

  struct Moe {
    std::int64_t experts = 0;  ///< 0: every layer is dense
    std::int64_t top_k = 0, ffn = 0;
    std::int64_t shared_experts = 0;
    bool shared_gate = false;
    Score score = Score::softmax;
    bool normalize = true;  ///< the scores of the chosen experts add up to 1
    double scale = 1;
    std::int64_t groups = 0, top_groups = 0;  ///< 0: experts are not in groups
    double bias_rate = 0;                     ///< of the bias that balances without a loss; 0: there is none
    ProbabilityAt probability_at = ProbabilityAt::activation;
    double capacity_factor = 0;  ///< of a rank's even share of tokens, the most that an expert takes; 0: all
    DropPolicy drop_policy = DropPolicy::probs;
    bool pad_to_capacity = false;  ///< always as many: tokens that were not routed there count 0
  } moe;

  struct Losses {
    BalanceLoss balance = BalanceLoss::none;
    double balance_weight = 0, z_weight = 0;
    std::int64_t mtp_depth = 0;  ///< layers of multi-token prediction
    double mtp_weight = 0;
  } losses;

  /// Layers of multi-token prediction are counted behind the others.
  bool has_experts(std::int64_t layer) const { return moe.experts > 0 && layer >= dense_layers; }
};

/// A preset by its name, a TOML file (its name ends in ".toml"), or a config.json of Hugging Face; behind it
/// what is different: "telechat3-105b-tiny,moe.top_k=1,tied_embeddings=true". Of a key given twice the last
/// value counts.
/// @throws Error  for an unknown name or key, and for a model that contradicts itself
Model load_model(const std::string& name);
std::vector<std::string_view> model_names();

/// The model as TOML: what load_model reads.
std::string to_toml(const Model&);

/// @throws Error  if no such model can be computed: sizes that are missing or do not divide
void check_model(const Model&, std::string_view where);

}  // namespace assay::align
