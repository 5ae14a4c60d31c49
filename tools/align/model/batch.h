#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/align/model/modes.h"
#include "assay/golden/tensor.h"

namespace assay::align {

/// The tokens of a micro-batch. Token l of sequence s is row l sequences + s, Megatron's [s, b, h]; or, with
/// batch_first as in Hugging Face's modeling code, row s length + l.
struct Batch {
  std::int64_t sequences = 1, length = 1;
  double prompt = 0;       ///< up to this part of a sequence, its first tokens, the targets do not count
  bool is_routed = false;  ///< each router's choice of experts is given with them
  std::optional<Modes> modes = {};  ///< others than those of the strategy
  bool batch_first = false;
  std::int64_t tokens() const { return sequences * length; }
  std::int64_t row(std::int64_t l, std::int64_t s) const {
    return batch_first ? s * length + l : l * sequences + s;
  }
};

inline Modes modes(const Batch& batch, const Model& model, const Parallel& parallel) {
  return batch.modes ? *batch.modes : modes_of(model, parallel);
}

/// A target that counts in no loss: torch's ignore_index.
inline constexpr std::int64_t no_target = -100;

/// The tokens of a micro-batch, and what follows each: a token or no_target.
struct Sequences {
  std::vector<std::int64_t> tokens, targets;
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

}  // namespace assay::align
