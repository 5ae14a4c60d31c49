#include "assay/align/model/huggingface_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "assay/dumps/io/json.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

class Config {
 public:
  Config(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  // The value of a key, if it is there and not null.
  const Json* find(std::string_view key) const {
    const Json* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  std::int64_t integer(std::string_view key) const { return json_.at(key, where_).integer(in(key)); }
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    const Json* value = find(key);
    return value == nullptr ? otherwise : value->integer(in(key));
  }
  double number(std::string_view key) const {
    json_.at(key, where_);
    return number(key, 0);
  }
  double number(std::string_view key, double otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    const std::optional<double> number = value->number();
    if (!number) throw Error("{} is {}; expected a number", in(key), value->kind());
    return *number;
  }
  bool flag(std::string_view key, bool otherwise) const {
    const double value = number(key, otherwise ? 1 : 0);
    if (value != 0 && value != 1) throw Error("{} is {}; expected true or false", in(key), value);
    return value != 0;
  }
  std::string text(std::string_view key, std::string_view otherwise) const {
    const Json* value = find(key);
    return value == nullptr ? std::string(otherwise) : value->string(in(key));
  }
  std::optional<Config> part(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    value->object(in(key));
    return Config(*value, in(key));
  }
  // What a Model cannot say is refused, not passed over.
  template <class T>
  void expect(std::string_view key, const T& found, const T& expected) const {
    if (found != expected)
      throw Error("{} is {}; expected {}: nothing else is replayed", in(key), found, expected);
  }
  std::string in(std::string_view key) const { return fmt::format("{}: '{}'", where_, key); }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

void read_sizes(const Config& c, Model& m) {
  m.layers = c.integer("num_hidden_layers");
  m.hidden = c.integer("hidden_size");
  m.vocabulary = c.integer("vocab_size");
  m.tied_embeddings = c.flag("tie_word_embeddings", false);
  m.norm_eps = c.number("rms_norm_eps");
  m.attention.heads = c.integer("num_attention_heads");
  c.expect<std::string>("hidden_act", c.text("hidden_act", "silu"), "silu");
  for (const char* key : {"attention_bias", "mlp_bias"}) c.expect(key, c.flag(key, false), false);
  for (const char* key : {"attention_dropout", "router_jitter_noise"}) c.expect(key, c.number(key, 0), 0.0);
  c.expect("partial_rotary_factor", c.number("partial_rotary_factor", 1), 1.0);
}

// Of rope_scaling, or in newer files of rope_parameters, which has theta, too.
void read_rope(const Config& c, Model& m) {
  const bool newer = c.find("rope_parameters") != nullptr;
  const std::optional<Config> scaling = c.part(newer ? "rope_parameters" : "rope_scaling");
  m.rope.theta = newer ? scaling->number("rope_theta") : c.number("rope_theta");
  if (!scaling) return;
  const char* const key = scaling->find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string kind = scaling->text(key, "default");
  if (kind == "default") return;
  scaling->expect<std::string>(key, kind, "yarn");
  if (scaling->find("attention_factor") != nullptr)
    throw Error("{}: is not replayed; expected mscale and mscale_all_dim", scaling->in("attention_factor"));
  m.rope.factor = scaling->number("factor");
  m.rope.original_positions = scaling->integer("original_max_position_embeddings");
  m.rope.beta_fast = scaling->number("beta_fast", 32);
  m.rope.beta_slow = scaling->number("beta_slow", 1);
  m.rope.mscale = scaling->number("mscale", 1);
  m.rope.mscale_all_dim = scaling->number("mscale_all_dim", 0);
  scaling->expect("truncate", scaling->flag("truncate", true), true);
  scaling->expect("partial_rotary_factor", scaling->number("partial_rotary_factor", 1), 1.0);
  // The modeling code passes one of them over where the other is missing or 0; DeepSeek's own does not.
  const bool both = scaling->number("mscale", 0) != 0 && m.rope.mscale_all_dim != 0;
  if (!both && (m.rope.mscale != 1 || m.rope.mscale_all_dim != 0))
    throw Error("{}: expected mscale and mscale_all_dim, or neither", scaling->where());
}

void read_gqa(const Config& c, Model& m) {
  Model::Attention& a = m.attention;
  a.kind = AttentionKind::gqa;
  a.kv_heads = c.integer("num_key_value_heads");
  a.head_dim = c.integer("head_dim", a.heads > 0 ? m.hidden / a.heads : 0);
  if (m.rope.mscale_all_dim != 0)
    throw Error("{}: mscale_all_dim is {}; expected none: their attention does not scale by it", c.where(),
                m.rope.mscale_all_dim);
  const bool sliding = c.flag("use_sliding_window", c.find("sliding_window") != nullptr);
  c.expect("use_sliding_window", sliding, false);
}

void read_mla(const Config& c, Model& m) {
  Model::Attention& a = m.attention;
  a.kind = AttentionKind::mla;
  a.q_rank = c.integer("q_lora_rank", 0);
  a.kv_rank = c.integer("kv_lora_rank");
  a.nope_dim = c.integer("qk_nope_head_dim");
  a.rope_dim = c.integer("qk_rope_head_dim");
  a.value_dim = c.integer("v_head_dim");
}

void read_softmax_router(const Config& c, Model& m) {
  m.moe.top_k = c.integer("num_experts_per_tok");
  m.moe.score = Score::softmax;
  m.moe.probability_at = ProbabilityAt::output;
  m.losses.balance_weight = c.number("router_aux_loss_coef");
  // The modeling code's loss counts the experts of all layers as if they were one layer's.
  c.expect("output_router_logits", c.flag("output_router_logits", false) && m.losses.balance_weight > 0,
           false);
}

void read_mixtral(const Config& c, Model& m) {
  read_gqa(c, m);
  read_softmax_router(c, m);
  m.moe.experts = c.integer("num_local_experts");
  m.moe.ffn = c.integer("intermediate_size");
  m.moe.normalize = true;
}

void read_qwen3_moe(const Config& c, Model& m) {
  read_gqa(c, m);
  read_softmax_router(c, m);
  m.attention.qk_norm = true;
  // transformers 5 writes the second.
  m.moe.experts = c.integer(c.find("num_experts") != nullptr ? "num_experts" : "num_local_experts");
  m.moe.ffn = c.integer("moe_intermediate_size");
  m.moe.normalize = c.flag("norm_topk_prob", false);
  m.dense_ffn = c.integer("intermediate_size", 0);
  c.expect<std::int64_t>("decoder_sparse_step", c.integer("decoder_sparse_step", 1), 1);
  const Json* dense = c.find("mlp_only_layers");
  if (dense == nullptr) return;
  for (const Json& layer : dense->array(c.in("mlp_only_layers"))) {
    if (layer.integer(c.in("mlp_only_layers")) != m.dense_layers++)
      throw Error("{}: expected the first layers, in order: others cannot be dense", c.in("mlp_only_layers"));
  }
}

// Its keys are DeepSeek-V3's.
void read_telechat3(const Config& c, Model& m) {
  read_mla(c, m);
  m.rope.interleaved = c.flag("rope_interleave", true);
  m.dense_layers = c.integer("first_k_dense_replace");
  m.dense_ffn = c.integer("intermediate_size");
  c.expect<std::int64_t>("moe_layer_freq", c.integer("moe_layer_freq", 1), 1);
  m.moe.experts = c.integer("n_routed_experts");
  m.moe.top_k = c.integer("num_experts_per_tok");
  m.moe.ffn = c.integer("moe_intermediate_size");
  m.moe.shared_experts = c.integer("n_shared_experts");
  m.moe.normalize = c.number("norm_topk_prob") != 0;
  m.moe.scale = c.number("routed_scaling_factor");
  m.moe.groups = c.integer("n_group");
  m.moe.top_groups = c.integer("topk_group");
  if (m.moe.groups <= 1) m.moe.groups = m.moe.top_groups = 0;
  const std::string scoring = c.text("scoring_func", "sigmoid");
  if (scoring != "sigmoid" && scoring != "softmax")
    throw Error("{} is '{}'; expected 'sigmoid' or 'softmax'", c.in("scoring_func"), scoring);
  m.moe.score = scoring == "sigmoid" ? Score::sigmoid : Score::softmax;
  // The configuration has no rate: DeepSeek-V3's report gives it (arXiv 2412.19437, section 4.2).
  c.expect<std::string>("topk_method", c.text("topk_method", "noaux_tc"), "noaux_tc");
  m.moe.bias_rate = 1e-3;
  m.moe.probability_at = ProbabilityAt::output;
  m.losses.balance_weight = c.number("aux_loss_alpha", 0);
  m.losses.balance = m.losses.balance_weight == 0 ? BalanceLoss::none
                     : c.flag("seq_aux", true)    ? BalanceLoss::sequence
                                                  : BalanceLoss::micro_batch;
  m.losses.mtp_depth = c.integer("num_nextn_predict_layers", 0);
  m.losses.mtp_weight = c.number("mtp_loss_scaling_factor", m.losses.mtp_depth > 0 ? 0.3 : 0);
}

// The modeling code's norms of latents keep its default, whatever rms_norm_eps is.
void read_deepseek_v3(const Config& c, Model& m) {
  read_telechat3(c, m);
  m.attention.latent_norm_eps = 1e-6;
}

struct Family {
  std::string_view type;
  void (*read)(const Config&, Model&);
};
constexpr std::array families = {Family{"deepseek_v3", read_deepseek_v3}, Family{"mixtral", read_mixtral},
                                 Family{"qwen3_moe", read_qwen3_moe}, Family{"telechat3", read_telechat3},
                                 Family{"telechat3_moe", read_telechat3}};

}  // namespace

Model model_from_huggingface(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  json.object(where);
  const Config config(json, where);
  const std::string type = config.text("model_type", "");
  const auto family = std::ranges::find(families, type, &Family::type);
  if (family == families.end()) {
    std::vector<std::string_view> known;
    for (const Family& f : families) known.push_back(f.type);
    throw Error("{} is '{}'; expected one of {}", config.in("model_type"), type, fmt::join(known, ", "));
  }
  Model model;
  model.name = type;
  model.source = where;
  read_sizes(config, model);
  read_rope(config, model);
  family->read(config, model);
  return model;
}

}  // namespace assay::align
