// Capacity (GShard, arXiv 2006.16668, section 2.2; docs/semantics.md A8). Each rank by itself: of its own T
// tokens an expert takes the first ceil(factor T top_k / experts), by probability or by position; padded it
// always takes so many, of which some count 0. What is left is not normalised again. No collective. What is
// dropped depends on how tp (with sequence parallel or without), cp and dp cut the tokens: to replay that
// elsewhere the tokens of each rank are taken one after the other.
#include "assay/align/forward/capacity.h"

#include <fmt/format.h>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/model/model_fields.h"

namespace assay::align {
namespace {

using Integers = Machine::Integers;

class Capacity {
 public:
  Capacity(LayerParts& parts, const std::string& module)
      : parts_(parts), on_(parts.on), moe_(parts.model.moe), of_(module), module_(module + "/capacity") {}

  Routed run(const Routed& routed) {
    const Value probs = dense(routed), map = map_of(routed.index);
    const Parallel& own = on_.mesh().parallel();
    const std::int64_t ranks = parts_.modes.ranks();
    const Kept kept = ranks == own.tp * own.cp ? of_rank(of_, probs, map) : of_ranks(ranks, probs, map);
    const Shape shape = probs.shape;
    const Value index =
        on_.derive({kept.map}, shape, routed.index.placement, [shape](const std::vector<Integers>& given) {
          Integers experts = given.front();
          for (std::size_t i = 0; i < experts.size(); ++i)
            experts[i] = experts[i] != 0 ? static_cast<std::int64_t>(i) % shape.back() : -1;
          return experts;
        });
    return {kept.probs, index};
  }

 private:
  struct Kept {
    Value probs, map, capacity;
  };

  Shape of_all_experts(const Value& index) const { return {index.shape.front(), moe_.experts}; }

  Value dense(const Routed& routed) {
    const Shape shape = of_all_experts(routed.index);
    const Value zeros = on_.derive(
        {}, shape, routed.weights.placement,
        [shape](const std::vector<Integers>&) {
          return Integers(static_cast<std::size_t>(element_count(shape)));
        },
        true);
    return on_.call(module_, "scatter_add", {{"x", zeros}, {"index", routed.index}, {"src", routed.weights}},
                    {{"dim", 1}});
  }

  Value map_of(const Value& index) {
    const std::int64_t experts = moe_.experts, top_k = moe_.top_k;
    return on_.derive(
        {index}, of_all_experts(index), index.placement,
        [experts, top_k](const std::vector<Integers>& given) {
          const Integers& chosen = given.front();
          Integers map(chosen.size() / static_cast<std::size_t>(top_k) * static_cast<std::size_t>(experts));
          for (std::size_t i = 0; i < chosen.size(); ++i) {
            const auto token = static_cast<std::int64_t>(i) / top_k;
            map[static_cast<std::size_t>(token * experts + chosen[i])] = 1;
          }
          return map;
        });
  }

  Attributes attributes() const {
    return {{"top_k", moe_.top_k},
            {"capacity_factor", moe_.capacity_factor},
            {"drop_policy", names_of<DropPolicy>[static_cast<std::size_t>(moe_.drop_policy)].data()},
            {"pad_to_capacity", moe_.pad_to_capacity}};
  }

  Kept of_rank(const std::string& module, const Value& probs, const Value& map) {
    const auto kept =
        on_.call_all(module, "moe_capacity_drop", {{"probs", probs}, {"routing_map", map}}, attributes());
    return {value_named(kept, "kept_probs"), value_named(kept, "kept_map"), value_named(kept, "capacity")};
  }

  // Of each rank of the strategy whose mode this is, then in the order of this rank's tokens.
  Kept of_ranks(std::int64_t ranks, const Value& probs, const Value& map) {
    const std::size_t first = on_.nodes().size();
    const Integers rows = rows_by_rank(parts_.modes, parts_.batch.sequences, parts_.batch.length);
    const Integers back = inverse(rows);
    const Value sorted = select(probs, rows);
    const std::int64_t each = probs.shape.front() / ranks;
    std::vector<NamedValue> parts;
    std::vector<Value> maps;
    Value capacity;  // the same of each
    for (std::int64_t r = 0; r < ranks; ++r) {
      const Integers own(rows.begin() + r * each, rows.begin() + (r + 1) * each);
      const Value of_own = on_.call(module_, "slice", {{"x", sorted}},
                                    {{"starts", std::vector{static_cast<double>(r * each)}},
                                     {"ends", std::vector{static_cast<double>((r + 1) * each)}},
                                     {"dims", std::vector{0.0}}});
      const Kept kept = of_rank(module_, of_own, select_indices({map}, own));
      parts.push_back({fmt::format("x_{}", r), kept.probs});
      maps.push_back(kept.map);
      capacity = kept.capacity;
    }
    Kept kept = {select(on_.call(module_, "concat", parts, {{"dim", 0}}), back), select_indices(maps, back),
                 capacity};
    on_.declare(first, of_, "moe_capacity_drop", {{"probs", probs}, {"routing_map", map}}, attributes(),
                {{"kept_probs", kept.probs}, {"kept_map", kept.map}, {"capacity", capacity}});
    return kept;
  }

  Value select(const Value& x, const Integers& rows) {
    const Value order = on_.derive({}, {static_cast<std::int64_t>(rows.size())}, x.placement,
                                   [rows](const std::vector<Integers>&) { return rows; });
    return on_.call(module_, "index_select", {{"x", x}, {"index", order}});
  }

  // Rows of matrices of indices that lie one behind the other.
  Value select_indices(const std::vector<Value>& from, const Integers& rows) {
    const std::int64_t columns = moe_.experts;
    return on_.derive(from, {static_cast<std::int64_t>(rows.size()), columns}, from.front().placement,
                      [rows, columns](const std::vector<Integers>& given) {
                        Integers all;
                        for (const Integers& part : given) all.insert(all.end(), part.begin(), part.end());
                        return selected_rows(all, columns, rows);
                      });
  }

  LayerParts& parts_;
  Machine& on_;
  const Model::Moe& moe_;
  const std::string& of_;
  const std::string module_;
};

}  // namespace

Routed within_capacity(LayerParts& parts, const std::string& module, const Routed& routed) {
  return Capacity(parts, module).run(routed);
}

}  // namespace assay::align
