#pragma once

#include <array>
#include <map>
#include <string>

#include "assay/align/model/batch.h"
#include "assay/align/model/stage.h"
#include "assay/align/placement/mesh.h"
#include "assay/align/planning/device.h"
#include "assay/align/settings/parallel.h"

namespace assay::align {

/// What one rank holds, computes and sends for a part of the model and one micro-batch, read off the forward
/// pass that a replay runs, typed for the strategy.
struct Block {
  /// Elements of parameters. Those of experts lie along etp, ep, edp; the embedding is one tensor, though the
  /// head may have it too.
  double dense = 0, experts = 0, embedding = 0;
  double output = 0;  ///< bytes that the next stage is given

  /// Bytes kept between forward and backward, and operations and seconds of what is done again, by Recompute.
  static constexpr std::size_t modes = 5;
  std::array<double, modes> kept = {}, flops_again = {}, sending_again = {};

  double flops = 0;  ///< of the forward pass; backward takes twice as many
  /// Seconds of communication, forward and backward, and their sum by the axis of the ranks.
  double sending_forward = 0, sending_backward = 0;
  std::map<Axis, double> sending = {};

  /// Seconds of a micro-batch, forward and backward.
  double seconds(Recompute, const Devices&) const;
};

/// Kept is what the gradient of an operator reads: the factors of a product, the inputs of what is not
/// linear, and attention's output with its log-sum-exp (FlashAttention, arXiv 2205.14135). Views, and what is
/// gathered over tp again in backward (arXiv 2205.05198, section 4.2.2), are kept once. Integers are not
/// counted.
/// @throws Error  if tensors are placed so that an operator cannot take them
Block measure(const Model&, const Batch&, const Parallel&, const Stage&, const Devices&, const Storage&);

}  // namespace assay::align
