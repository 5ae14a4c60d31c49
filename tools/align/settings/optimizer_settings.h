#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "assay/golden/tensor.h"

namespace assay::align {

/// What an optimizer computes, by the name of who does so; adam_l2 and torch_adam let the decay into the
/// moments, mindspore_adamw corrects no bias, eps_hat adds eps before the correction.
enum class OptimizerName : std::uint8_t {
  adamw,            ///< apex's, Transformer Engine's and DeepSpeed's FusedAdam, adam_w_mode 1: Megatron-LM
  adam_l2,          ///< the same, mode 0
  torch_adamw,      ///< torch.optim.AdamW; MindFormers
  torch_adam,       ///< torch.optim.Adam
  mindspore_adamw,  ///< mindspore.nn.AdamWeightDecay
  eps_hat,          ///< TensorFlow
  muon              ///< Moonlight: AdamW for what is no matrix, for embeddings and heads
};

/// Which parameters decay.
enum class DecayRule : std::uint8_t {
  matrices,      ///< no vectors: Megatron-LM, MindFormers
  all,           ///< torch without groups, torchtitan, DeepSpeed
  no_beta_gamma  ///< those with neither in their name: MindSpore without groups
};

/// What clipping by the norm of all gradients multiplies them with where that is less than 1.
enum class ClipRule : std::uint8_t {
  torch,        ///< max_norm / (norm + 1e-6): torch.nn.utils.clip_grad_norm_, Megatron-LM
  mindformers,  ///< max_norm / norm
  none
};

/// What Muon takes for a matrix that tensor parallel has cut (Megatron-LM's muon_tp_mode).
enum class MuonMatrix : std::uint8_t {
  whole,     ///< gathered: that of a single device
  blockwise  ///< each rank's piece: another function
};

struct OptimizerSettings {
  OptimizerName name = OptimizerName::adamw;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8,
         weight_decay = 0.1;  ///< TeleChat3's; of an optimizer with a framework's name that one's
  DecayRule decay = DecayRule::matrices;
  double max_norm = 1;  ///< 0: gradients are not clipped
  ClipRule clip = ClipRule::torch;
  double momentum = 0.95;                 ///< of muon
  MuonMatrix matrix = MuonMatrix::whole;  ///< of muon
  bool muon_routers = true;               ///< false: AdamW for routers
  bool operator==(const OptimizerSettings&) const = default;
};

/// "adamw", "torch-adam,lr=0.01,decay=matrices": a name, whose framework's rules hold, and what differs.
/// @throws Error  for an unknown name or key, and for a value that it cannot have, with those it can
OptimizerSettings parse_optimizer(std::string_view);
/// What parse_optimizer reads; what the name implies is left out.
std::string to_string(const OptimizerSettings&);

/// @param shape  of the whole parameter; experts', [experts, out, in], are matrices
bool decays(const OptimizerSettings&, std::string_view parameter, const Shape& shape);
bool by_muon(const OptimizerSettings&, std::string_view parameter, const Shape& shape);
double clip_coefficient(const OptimizerSettings&, double norm);

}  // namespace assay::align
