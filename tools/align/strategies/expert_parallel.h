#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/align/placement/machine.h"

namespace assay::align {

/// What a router gives for the tokens of this rank.
struct Routed {
  Value weights, index;  ///< [tokens, top_k]
};

/// The rows of the experts of a rank, and what brings them back.
struct Dispatched {
  Value rows;   ///< [rows, hidden], by expert
  Value sizes;  ///< of the rows, for each expert here
  Value probs;  ///< of each row, if they are applied here
  Value weights;

  // the way back
  Value sorted_index, give, take, back_order;
  std::int64_t tokens = 0;
};

/// The way of the tokens to their experts and back (docs/semantics.md D6, D7).
class Dispatcher {
 public:
  Dispatcher(Machine& on, std::string module, std::int64_t experts)
      : on_(on), module_(std::move(module)), experts_(experts) {}

  /// @param with_probs  whether the experts apply them, and not combine()
  Dispatched dispatch(Value x, Routed, bool with_probs);
  /// @param y  what the experts made of the rows
  Value combine(const Dispatched&, Value y, bool with_probs);

  /// Of [experts, out, in]: its experts, and of them its columns or rows.
  static std::vector<Sharding> column_parallel();
  static std::vector<Sharding> row_parallel();
  /// The sum of what the rows of the matrices give, where they are cut.
  Value reduce_rows(const Value& partial_sum);

 private:
  std::int64_t node() const { return on_.mesh().node_size(); }
  std::int64_t nodes() const { return on_.mesh().size(Axis::ep) / node(); }
  std::int64_t experts_of_node() const { return experts_ / nodes(); }
  Value gather(const Value&);
  Value at_their_slots(const Value& index);
  Value select_of_node(const Value& index);
  void exchange(Dispatched&, const Value& sizes, bool with_probs);
  Value select(const Value& x, const Value& order);

  Machine& on_;
  const std::string module_;
  const std::int64_t experts_;
  MeshPlacement dense_;  ///< of the tokens before the dispatch
};

}  // namespace assay::align
