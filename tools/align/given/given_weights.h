#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/align/forward/architecture.h"
#include "assay/align/given/given_dump.h"

namespace assay::align {

/// The model without layers of multi-token prediction if the weights have none: config.json counts them
/// though the modeling code of Hugging Face has none (DeepSeek-V3).
Model model_of_weights(const std::string& path, Model);

/// The initial weights of a replay: those of the first step of an assay-dump, or a checkpoint that has
/// Hugging Face's names. There experts are a tensor each, "model.layers.3.mlp.experts.7.gate_proj.weight",
/// Mixtral's "model.layers.3.block_sparse_moe.experts.7.w1.weight", or of transformers 5 one for all,
/// "model.layers.3.mlp.experts.gate_up_proj".
class GivenWeights {
 public:
  /// Throws Error if a parameter of the model is missing or has another shape, or if a tensor is none of
  /// them.
  GivenWeights(const std::string& path, const Model&);
  /// Whole, in float64. From any thread.
  Tensor parameter(const std::string& name) const;

 private:
  /// Where a parameter is: in a tensor, in one of each expert, or in a half of one along dim 1.
  enum class Place : std::uint8_t { whole, of_each_expert, first_half, second_half };
  struct Source {
    Shape shape;
    Place place = Place::whole;
    std::vector<const LogicalTensor*> parts = {};
  };
  /// What transformers 5 has of all experts.
  struct Fused {
    std::string_view own, theirs;
    Place place;
  };
  static const Fused fused[];

  void list();
  Source source_of(const Parameter&) const;
  std::vector<const LogicalTensor*> of_each(const std::string& pattern, std::int64_t experts) const;
  void check_shapes(const std::string& parameter, const Source&) const;
  void check_rest(const Model&) const;
  void check_copy(const std::string& name, const std::string& original) const;

  const GivenDump given_;
  std::map<std::string, const LogicalTensor*> known_;  ///< by the name of a checkpoint
  std::map<std::string, Source> sources_;              ///< by parameter
};

}  // namespace assay::align
