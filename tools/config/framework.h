#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace assay::config {

/// Whose words a file is in; where several of them run together, the first one's defaults hold.
enum class Framework : std::uint8_t {
  megatron,
  mindformers,
  torchtitan,
  deepspeed,
  huggingface,
  environment
};

struct FrameworkRow {
  std::string_view name;      ///< "Megatron-LM"
  std::string_view file;      ///< what a file of it is called: "Megatron-LM arguments"
  std::string_view defaults;  ///< where the defaults of its keys stand: for --json
};

inline constexpr std::array<FrameworkRow, 6> frameworks = {
    {{"Megatron-LM", "Megatron-LM arguments", "megatron/training/arguments.py at 000c4ac2"},
     {"MindFormers", "MindFormers YAML", "mindformers/parallel_core/transformer_config.py at 125cb8cd"},
     {"torchtitan", "torchtitan TOML", "torchtitan/config/job_config.py at 000204a4"},
     {"DeepSpeed", "DeepSpeed JSON", "deepspeed/runtime/constants.py and config.py"},
     {"Hugging Face", "Hugging Face config.json",
      "the configurations of DeepSeek-V3, Mixtral and Qwen3-MoE in transformers, where they agree"},
     {"the environment", "environment variables", "the documents of CUDA, NCCL, CANN and PyTorch"}}};

constexpr const FrameworkRow& row_of(Framework f) {
  return frameworks[static_cast<std::size_t>(f)];
}

}  // namespace assay::config
