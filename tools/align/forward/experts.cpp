// A layer of experts: router, dispatch, grouped matmuls, shared expert, balance losses (docs/semantics.md A7
// to A11).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/forward/capacity.h"
#include "assay/align/forward/layer_parts.h"
#include "assay/align/model/model_fields.h"
#include "assay/align/strategies/expert_parallel.h"
#include "assay/align/strategies/regions.h"

namespace assay::align {
namespace {

class Experts {
 public:
  Experts(LayerParts& parts, const std::string& module)
      : parts_(parts), on_(parts.on), m_(parts.model), moe_(parts.model.moe), module_(module) {}

  Value run(const Value& x, std::vector<Loss>& losses) {
    const Value logits = parts_.linear(module_, "gate", x, moe_.experts);
    const std::vector<NamedValue> routed = route(logits);
    const Value& index = value_named(routed, "index");
    balance(logits, index, losses);
    const auto own = [&](const Value& v) { return split_tokens(on_, module_, v); };
    Routed to = {own(value_named(routed, "weights")), own(index)};
    if (moe_.capacity_factor > 0) to = within_capacity(parts_, module_, to);
    const Value out = gather_tokens(on_, module_, feed_forward(own(x), to));
    return moe_.shared_experts > 0 ? parts_.add(module_, out, shared(x)) : out;
  }

 private:
  Value feed_forward(const Value& x, const Routed& routed) {
    const bool inside = moe_.probability_at == ProbabilityAt::activation;
    Dispatcher dispatcher(on_, module_, moe_.experts);
    const Dispatched d = dispatcher.dispatch(x, routed, inside);
    std::vector<NamedValue> gated = {
        {"gate", matmul("gate_proj", d.rows, d.sizes, moe_.ffn, Dispatcher::column_parallel())},
        {"up", matmul("up_proj", d.rows, d.sizes, moe_.ffn, Dispatcher::column_parallel())}};
    if (inside) gated.push_back({"probs", d.probs});
    const Value activation = on_.call(module_ + ".experts.*", "swiglu", gated);
    const Value out = dispatcher.reduce_rows(
        matmul("down_proj", activation, d.sizes, m_.hidden, Dispatcher::row_parallel()));
    return dispatcher.combine(d, out, inside);
  }

  Value shared(const Value& x) {
    const Value y = parts_.feed_forward(module_ + ".shared_experts", x, moe_.shared_experts * moe_.ffn);
    if (!moe_.shared_gate) return y;
    const Value gate =
        on_.call(module_, "sigmoid", {{"x", parts_.linear(module_, "shared_expert_gate", x, 1)}});
    return on_.call(module_, "mul", {{"a", y}, {"b", gate}});
  }

  std::vector<NamedValue> route(const Value& logits) {
    Attributes a = {{"top_k", moe_.top_k},
                    {"score", moe_.score == Score::sigmoid ? "sigmoid" : "softmax"},
                    {"pre_softmax", moe_.score != Score::softmax_of_chosen},
                    {"normalize", moe_.normalize},
                    {"scaling", moe_.scale}};
    if (moe_.groups > 0) {
      // As DeepSeek-V3 and Hugging Face score a group; Megatron-LM's top_k / top_groups is the same for 8
      // of 4.
      a.set("groups",
            std::vector<double>{static_cast<double>(moe_.groups), static_cast<double>(moe_.top_groups)});
      a.set("group_top", 2.0);
    }
    std::vector<NamedValue> inputs = {{"logits", logits}};
    if (moe_.bias_rate > 0)
      inputs.push_back(
          {"expert_bias", on_.parameter(module_ + ".gate.e_score_correction_bias", {moe_.experts})});
    if (parts_.batch.is_routed) inputs.push_back({"chosen", given_choice(logits)});
    return on_.call_all(module_, "router_topk", inputs, a);
  }

  // Of the tokens of the logits.
  Value given_choice(const Value& logits) {
    return on_.indices(name_of(OfLayer::choice, module_), {logits.shape.front(), moe_.top_k},
                       shardings_of(logits.placement));
  }

  Value matmul(const std::string& name, const Value& rows, const Value& sizes, std::int64_t out,
               const std::vector<Sharding>& shardings) {
    const std::string own = fmt::format("{}.experts.*.{}", module_, name);
    std::int64_t in = rows.shape.back();
    for (const Sharding& s : shardings) in *= s.placed == sharded(2) ? on_.mesh().size(s.axis) : 1;
    const Value w = on_.parameter(own + ".weight", {moe_.experts, out, in}, shardings);
    return on_.call(own, "grouped_matmul", {{"x", rows}, {"w", w}, {"group_sizes", sizes}},
                    {{"transpose_weight", true}});
  }

  // Every rank has the losses of the whole micro-batch, from the logits of all that have tokens of it.
  void balance(const Value& logits, const Value& index, std::vector<Loss>& losses) {
    if (m_.losses.balance == BalanceLoss::none && m_.losses.z_weight <= 0) return;
    const Value all = gather(logits);
    const char* const score = moe_.score == Score::sigmoid ? "sigmoid" : "softmax";
    if (m_.losses.balance != BalanceLoss::none) {
      const bool by_sequence = m_.losses.balance == BalanceLoss::sequence;
      const Value chosen = gather_indices(index);
      const Value z = by_sequence ? sequences_of(all) : all, k = by_sequence ? choices_of(chosen) : chosen;
      std::vector<NamedValue> inputs = {{"logits", z}, {"index", k}};
      const std::int64_t together = parts_.modes.counted_together;
      // Of one micro-batch every group's loss is that of the micro-batch.
      const BalanceLoss kind = by_sequence || together > 1 ? m_.losses.balance : BalanceLoss::micro_batch;
      if (together > 1) inputs.push_back({"group_tokens_per_expert", count_together(chosen, together)});
      losses.push_back({module_ + ".balance",
                        on_.call(module_, "moe_aux_loss", inputs,
                                 {{"top_k", moe_.top_k},
                                  {"kind", names_of<BalanceLoss>[static_cast<std::size_t>(kind)].data()},
                                  {"score", score},
                                  {"group_size", static_cast<double>(together)}}),
                        m_.losses.balance_weight, MeanOf::tokens});
    }
    if (m_.losses.z_weight > 0)
      losses.push_back({module_ + ".z", on_.call(module_, "moe_z_loss", {{"logits", all}}),
                        m_.losses.z_weight, MeanOf::tokens});
  }

  // [length, sequences, experts]
  Value sequences_of(const Value& logits) {
    const std::int64_t sequences = parts_.batch.sequences, length = logits.shape.front() / sequences;
    if (!parts_.batch.batch_first) return parts_.reshape(module_, logits, {length, sequences, moe_.experts});
    return parts_.permute(module_, parts_.reshape(module_, logits, {sequences, length, moe_.experts}),
                          {1, 0, 2});
  }

  Value choices_of(const Value& index) {
    const std::int64_t sequences = parts_.batch.sequences, length = index.shape.front() / sequences;
    const Shape shape = {length, sequences, moe_.top_k};
    if (!parts_.batch.batch_first) return on_.view(index, shape);
    Machine::Integers rows;
    for (std::int64_t l = 0; l < length; ++l) {
      for (std::int64_t s = 0; s < sequences; ++s) rows.push_back(s * length + l);
    }
    return on_.derive({index}, shape, {}, [rows, columns = moe_.top_k](const auto& given) {
      return selected_rows(given[0], columns, rows);
    });
  }

  // The tokens of each expert in so many micro-batches: of other ranks of dp, and of those that this rank has
  // before or behind this one.
  Value count_together(const Value& chosen, std::int64_t micro_batches) {
    const std::int64_t of_ranks = std::min(micro_batches, on_.mesh().size(Axis::dp));
    const Shape shape = {moe_.experts};
    std::vector<Value> from = {on_.view(chosen, {element_count(chosen.shape)})};
    if (of_ranks < micro_batches) from.push_back(on_.indices(name_of(OfLayer::other_tokens, module_), shape));
    const Value own =
        on_.derive(from, shape, {}, [experts = moe_.experts](const std::vector<Machine::Integers>& given) {
          Machine::Integers counts = given.size() > 1 ? given[1] : Machine::Integers();
          counts.resize(static_cast<std::size_t>(experts));
          for (const std::int64_t e : given.front()) ++counts[static_cast<std::size_t>(e)];
          return counts;
        });
    const Value all = on_.sum_of_neighbours(module_, own, of_ranks);
    return on_.derive(
        {all}, shape, {}, [](const auto& given) { return given.front(); }, true);
  }

  // All tokens of the micro-batch, in their order.
  Value gather(const Value& x) {
    const Value all = gather_ranks(x);
    const std::optional<Value> order = order_of_ring();
    if (!order) return all;
    return on_.call(module_ + "/gather", "index_select", {{"x", all}, {"index", *order}});
  }

  Value gather_indices(const Value& x) {
    const Value all = gather_ranks(x);
    const std::optional<Value> order = order_of_ring();
    if (!order) return all;
    const std::int64_t columns = x.shape.back();
    return on_.derive({all, *order}, all.shape, all.placement,
                      [columns](const auto& given) { return selected_rows(given[0], columns, given[1]); });
  }

  // Where each token is among those that a ring's ranks give, which have pieces from both ends.
  std::optional<Value> order_of_ring() {
    const Mesh& mesh = on_.mesh();
    const std::int64_t ranks = mesh.size(Axis::cp);
    if (ranks == 1 || mesh.parallel().context != ContextMode::ring) return std::nullopt;
    const Machine::Integers order =
        inverse(rows_by_rank({.cp = ranks}, parts_.batch.sequences, parts_.batch.length * ranks));
    return on_.derive({}, {static_cast<std::int64_t>(order.size())}, {},
                      [order](const auto&) { return order; });
  }

  Value gather_ranks(const Value& x) {
    const bool by_sequence_parallel = on_.mesh().parallel().sp;
    const Value of_tp =
        by_sequence_parallel ? on_.move(module_, {Movement::Kind::all_gather, Axis::tp}, x) : x;
    return on_.move(module_, {Movement::Kind::all_gather, Axis::cp}, of_tp);
  }

  LayerParts& parts_;
  Machine& on_;
  const Model& m_;
  const Model::Moe& moe_;
  const std::string& module_;
};

}  // namespace

Value experts(LayerParts& parts, const std::string& module, const Value& x, std::vector<Loss>& losses) {
  return Experts(parts, module).run(x, losses);
}

}  // namespace assay::align
