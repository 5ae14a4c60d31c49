#pragma once

#include <vector>

#include "assay/config/key.h"

namespace assay::config {

inline constexpr Framework environment = Framework::environment, megatron = Framework::megatron,
                           mindformers = Framework::mindformers, torchtitan = Framework::torchtitan,
                           deepspeed = Framework::deepspeed, huggingface = Framework::huggingface;

std::vector<Key> model_keys();
std::vector<Key> router_keys();
std::vector<Key> loss_keys();
std::vector<Key> optimizer_keys();
std::vector<Key> precision_keys();
std::vector<Key> determinism_keys();
std::vector<Key> parallel_keys();
std::vector<Key> data_keys();

}  // namespace assay::config
