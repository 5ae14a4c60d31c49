#pragma once

#include <array>
#include <string>
#include <string_view>

#include "assay/align/model/model.h"

/// Every field of a model once: readers, writers and checks take them from here.
namespace assay::align {

template <class E>
inline constexpr std::array<std::string_view, 0> names_of = {};
template <>
inline constexpr std::array<std::string_view, 2> names_of<AttentionKind> = {"mla", "gqa"};
template <>
inline constexpr std::array<std::string_view, 3> names_of<Score> = {"softmax_of_chosen", "softmax",
                                                                    "sigmoid"};
template <>
inline constexpr std::array<std::string_view, 2> names_of<ProbabilityAt> = {"activation", "output"};
template <>
inline constexpr std::array<std::string_view, 2> names_of<DropPolicy> = {"probs", "position"};
template <>
inline constexpr std::array<std::string_view, 5> names_of<BalanceLoss> = {"none", "sequence", "micro_batch",
                                                                          "ep_group", "dp_group"};

/// A field's table in TOML ("" is the top) and key, and the legal range of a number: several times the
/// largest models there are, and so that no product of sizes leaves int64.
struct Field {
  std::string_view table, key;
  double low = 0, high = 1 << 18;
};

inline std::string full_key(const Field& field) {
  return (field.table.empty() ? "" : std::string(field.table) + ".") + std::string(field.key);
}

/// visit(Field, member&) for each; a member is an int64, a double, a bool, a string or an enumeration.
template <class M, class Visit>
void for_each_field(M& m, Visit visit) {
  visit(Field{"", "name"}, m.name);
  visit(Field{"", "source"}, m.source);
  visit(Field{"", "layers", 1, 1 << 10}, m.layers);
  visit(Field{"", "dense_layers", 0, 1 << 10}, m.dense_layers);
  visit(Field{"", "hidden", 1}, m.hidden);
  visit(Field{"", "vocabulary", 2, 1 << 24}, m.vocabulary);
  visit(Field{"", "tied_embeddings"}, m.tied_embeddings);
  visit(Field{"", "norm_eps", 0, 1}, m.norm_eps);
  visit(Field{"", "sandwich_norm"}, m.sandwich_norm);
  visit(Field{"", "dense_ffn"}, m.dense_ffn);
  visit(Field{"attention", "kind"}, m.attention.kind);
  visit(Field{"attention", "heads", 1, 1 << 12}, m.attention.heads);
  visit(Field{"attention", "kv_heads", 0, 1 << 12}, m.attention.kv_heads);
  visit(Field{"attention", "head_dim", 0, 1 << 12}, m.attention.head_dim);
  visit(Field{"attention", "qk_norm"}, m.attention.qk_norm);
  visit(Field{"attention", "q_rank"}, m.attention.q_rank);
  visit(Field{"attention", "kv_rank"}, m.attention.kv_rank);
  visit(Field{"attention", "nope_dim", 0, 1 << 12}, m.attention.nope_dim);
  visit(Field{"attention", "rope_dim", 0, 1 << 12}, m.attention.rope_dim);
  visit(Field{"attention", "value_dim", 0, 1 << 12}, m.attention.value_dim);
  visit(Field{"attention", "latent_norm_eps", 0, 1}, m.attention.latent_norm_eps);
  visit(Field{"rope", "theta", 2, 1e12}, m.rope.theta);
  visit(Field{"rope", "interleaved"}, m.rope.interleaved);
  visit(Field{"rope", "factor", 1, 1e6}, m.rope.factor);
  visit(Field{"rope", "original_positions", 1, 1 << 24}, m.rope.original_positions);
  visit(Field{"rope", "beta_fast", 1e-3, 1e6}, m.rope.beta_fast);
  visit(Field{"rope", "beta_slow", 1e-3, 1e6}, m.rope.beta_slow);
  visit(Field{"rope", "mscale", 0, 100}, m.rope.mscale);
  visit(Field{"rope", "mscale_all_dim", 0, 100}, m.rope.mscale_all_dim);
  visit(Field{"moe", "experts", 0, 1 << 14}, m.moe.experts);
  visit(Field{"moe", "top_k", 0, 1 << 14}, m.moe.top_k);
  visit(Field{"moe", "ffn"}, m.moe.ffn);
  visit(Field{"moe", "shared_experts", 0, 1 << 8}, m.moe.shared_experts);
  visit(Field{"moe", "shared_gate"}, m.moe.shared_gate);
  visit(Field{"moe", "score"}, m.moe.score);
  visit(Field{"moe", "normalize"}, m.moe.normalize);
  visit(Field{"moe", "scale", 0, 1e6}, m.moe.scale);
  visit(Field{"moe", "groups", 0, 1 << 14}, m.moe.groups);
  visit(Field{"moe", "top_groups", 0, 1 << 14}, m.moe.top_groups);
  visit(Field{"moe", "bias_rate", 0, 1}, m.moe.bias_rate);
  visit(Field{"moe", "probability_at"}, m.moe.probability_at);
  visit(Field{"moe", "capacity_factor", 0, 1e6}, m.moe.capacity_factor);
  visit(Field{"moe", "drop_policy"}, m.moe.drop_policy);
  visit(Field{"moe", "pad_to_capacity"}, m.moe.pad_to_capacity);
  visit(Field{"losses", "balance"}, m.losses.balance);
  visit(Field{"losses", "balance_weight", 0, 1e6}, m.losses.balance_weight);
  visit(Field{"losses", "z_weight", 0, 1e6}, m.losses.z_weight);
  visit(Field{"losses", "mtp_depth", 0, 16}, m.losses.mtp_depth);
  visit(Field{"losses", "mtp_weight", 0, 1e6}, m.losses.mtp_weight);
}

}  // namespace assay::align
