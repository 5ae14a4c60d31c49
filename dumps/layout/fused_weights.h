#pragma once

#include <memory>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Where one side has a weight of all experts (transformers 5: "experts gate_up_proj" [experts, 2 inner, in])
/// and the other a weight of each ("experts.3.gate_proj weight" [inner, in]) or one for each of its matrices
/// ("experts.*.gate_proj weight", or torchtitan's "experts w1", [experts, inner, in]), the other side gets
/// the first, put together of its own, which are then how it makes them (Record::within). So do gradients and
/// optimizer states. What is not whole in its records, or has another shape, stays as it is.
void fuse_weights(std::unique_ptr<Dump>& actual, std::unique_ptr<Dump>& reference);

}  // namespace assay
