#pragma once

#include <optional>

#include "assay/align/model/modes.h"
#include "assay/align/placement/machine.h"

namespace assay::align {

/// The tokens of a micro-batch: token l of sequence s is row l sequences + s, Megatron's [s, b, h].
struct Batch {
  std::int64_t sequences = 1, length = 1;
  double prompt = 0;       ///< up to this part of a sequence, its first tokens, the targets do not count
  bool is_routed = false;  ///< each router's choice of experts is given with them
  std::optional<Modes> modes = {};  ///< others than those of the strategy
  std::int64_t tokens() const { return sequences * length; }
};

inline Modes modes(const Batch& batch, const Model& model, const Parallel& parallel) {
  return batch.modes ? *batch.modes : modes_of(model, parallel);
}

/// What of a micro-batch a loss is a mean of.
enum class MeanOf : std::uint8_t { targets, tokens };

/// A scalar that counts so much in the loss of the micro-batch.
struct Loss {
  std::string name;  ///< "cross_entropy", "model.layers.3.mlp.balance", ..
  Value value;
  double weight = 1;
  MeanOf mean_of = MeanOf::targets;
};

/// What of a model is computed in one go: layers [first, end), the embedding before them, the loss behind.
/// The layers of multi-token prediction come with the loss.
struct Stage {
  std::int64_t first = 0, end = 0;
  bool embeds = true, finishes = true;
};
Stage whole(const Model&);

struct Forward {
  Value x;  ///< [tokens here, hidden], behind the last layer of the stage
  std::vector<Loss> losses;
};

/// What the indices of a step say of a layer of experts.
enum class OfLayer : std::uint8_t {
  choice,        ///< [tokens, top_k]: the experts that its router takes
  other_tokens,  ///< [experts]: how many tokens they get in other micro-batches of this rank that count with
                 ///< this one for the balance loss (modes.h)
  slots          ///< [experts]: which matrix each is, where they move (expert_placement.h)
};
std::string name_of(OfLayer, const std::string& layer);
struct LayerIndices {
  OfLayer what;
  std::string layer;
};
/// Of such a name; else nothing.
std::optional<LayerIndices> of_layer(const std::string& name);

/// The forward pass (facts A) of a rank. Of the indices "tokens" and "targets" it has those of its part of
/// the sequences; of multi-token prediction at depth k "tokens_k" and "targets_k", rolled left by k.
/// "valid_targets" counts those of the whole micro-batch that are not left out. Where the batch is routed,
/// the choices of the routers are among them.
/// @param batch  of the whole micro-batch
/// @param x      what the stage before gave; of one that embeds, nothing
Forward forward(Machine&, const Model&, const Batch& batch, const Stage&, const std::optional<Value>& x = {});

}  // namespace assay::align
