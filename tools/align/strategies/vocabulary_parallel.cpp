// Vocabulary parallel (Shoeybi 2019, arXiv 1909.08053, section 3; Megatron-LM's VocabParallelEmbedding and
// vocab_parallel_cross_entropy). Every rank of tp holds its part of the rows of embedding and head.
// Collectives over tp: all-reduce SUM of embeddings, what another rank has being 0; of a token's logits the
// ranks' largest are gathered, and their sums of exponentials and the target's logit are all-reduced (SUM).
// No scaling. A single device takes the same steps, so that exact sums round where they do on many.
#include "assay/align/strategies/vocabulary_parallel.h"

#include "assay/align/model/batch.h"
#include "assay/align/strategies/regions.h"

namespace assay::align {
namespace {

using Kind = Movement::Kind;
using Integers = Machine::Integers;

// The part of the vocabulary that is here.
struct VocabularyRows {
  VocabularyRows(const Mesh& mesh, std::int64_t whole)
      : size(whole / mesh.size(Axis::tp)), first(size * mesh.coordinate(Axis::tp)) {}
  bool has(std::int64_t token) const { return token >= first && token < first + size; }
  /// Its number here; of others 0.
  std::int64_t number(std::int64_t token) const { return has(token) ? token - first : 0; }
  std::int64_t size, first;
};

template <class F>
Value each(Machine& on, const Value& tokens, const Shape& shape, F f, bool real) {
  return on.derive(
      {tokens}, shape, tokens.placement,
      [f](const std::vector<Integers>& given) {
        Integers result;
        for (const std::int64_t token : given.front()) result.push_back(f(token));
        return result;
      },
      real);
}

}  // namespace

Value embed_in_parallel(Machine& on, const std::string& module, const Value& tokens, std::int64_t vocabulary,
                        std::int64_t hidden) {
  const Value weight = on.parameter("model.embed_tokens.weight", {vocabulary, hidden}, column_parallel());
  if (on.mesh().size(Axis::tp) == 1)
    return on.call(module, "embedding", {{"weight", weight}, {"index", tokens}});
  const VocabularyRows part(on.mesh(), vocabulary);
  const Value index = each(
      on, tokens, tokens.shape, [=](std::int64_t token) { return part.number(token); }, false);
  const Value mask = each(
      on, tokens, {tokens.shape.front(), 1}, [=](std::int64_t token) { return part.has(token) ? 1 : 0; },
      true);
  const std::string inside = module + "/vocabulary";
  const std::size_t first_node = on.nodes().size();
  const Value rows = on.call(inside, "embedding", {{"weight", weight}, {"index", index}});
  Value y = leave_region(on, inside, on.call(inside, "mul", {{"a", rows}, {"b", mask}}));
  on.declare(first_node, module, "embedding", {{"weight", weight}, {"index", tokens}}, {}, {{"y", y}});
  return y;
}

namespace {

// Of each token [tokens, 1], a constant: it shifts what is exponentiated, and cancels.
Value largest(Machine& on, const std::string& module, const Value& logits) {
  const Attributes of_token = {{"dim", 1}, {"keepdim", true}, {"ties", "even"}};
  const auto largest_of = [&](const Value& x, const std::vector<Sharding>& placed) {
    return on.call(module, "reduce_max", {{"x", x}}, of_token, placed);
  };
  Value y = largest_of(logits, {{Axis::tp, sharded(1)}});
  if (on.mesh().size(Axis::tp) > 1) y = largest_of(on.move(module, {Kind::all_gather, Axis::tp, 1}, y), {});
  return on.view(y, y.shape);
}

}  // namespace

Value cross_entropy_in_parallel(Machine& on, const std::string& module, const Value& logits,
                                const Value& targets, std::int64_t vocabulary) {
  const std::string inside = module + "/vocabulary";
  const std::size_t first_node = on.nodes().size();
  const auto call = [&](const char* op, const std::vector<NamedValue>& inputs, const Attributes& a = {},
                        const std::vector<Sharding>& placed = {}) {
    return on.call(inside, op, inputs, a, placed);
  };
  const auto all_reduce = [&](const Value& x) { return on.move(inside, {Kind::all_reduce, Axis::tp}, x); };
  const VocabularyRows part(on.mesh(), vocabulary);
  const Shape column = {targets.shape.front(), 1};
  const Value index = each(
      on, targets, column, [=](std::int64_t token) { return part.number(token); }, false);
  const Value is_here = each(
      on, targets, column, [=](std::int64_t token) { return part.has(token) ? 1 : 0; }, true);
  const Value counts = each(
      on, targets, column, [](std::int64_t token) { return token == no_target ? 0 : 1; }, true);

  const Value shifted = call("sub", {{"a", logits}, {"b", largest(on, inside, logits)}});
  const Value sum = all_reduce(
      call("reduce_sum", {{"x", call("exp", {{"x", shifted}})}}, {{"dims", 1}, {"keepdim", true}}));
  const Value own = call("gather", {{"x", shifted}, {"index", index}}, {{"dim", 1}}, {{Axis::tp, partial}});
  const Value of_target = all_reduce(call("mul", {{"a", own}, {"b", is_here}}));
  const Value losses = call("sub", {{"a", call("log", {{"x", sum}})}, {"b", of_target}});
  Value y =
      call("reshape", {{"x", call("mul", {{"a", losses}, {"b", counts}})}},
           {{"shape", std::vector{static_cast<double>(column.front())}}}, shardings_of(targets.placement));
  on.declare(first_node, module, "cross_entropy", {{"logits", logits}, {"target", targets}},
             {{"reduction", "none"}}, {{"loss", y}});
  return y;
}

}  // namespace assay::align
