#pragma once

/// Attribute values of published models and of framework defaults. No recorder writes these attributes.
namespace assay {

/// RoFormer (arXiv:2104.09864) and TeleChat3 1e4; Llama 3 5e5; Mixtral, Qwen2 and GLM-4.5 1e6; Moonlight and
/// Kimi K2 5e4; DeepSeek-Coder 1e5; gpt-oss 1.5e5; Yi 5e6; Command R 8e6; Qwen2.5-1M 1e7: rope_theta in
/// their config.json.
inline constexpr double rope_bases[] = {1e4, 5e5, 1e6, 5e4, 1e5, 1.5e5, 5e6, 8e6, 1e7};

/// DeepSeek-V3's and Kimi K2's rope_scaling (arXiv:2309.00071 defaults otherwise).
inline constexpr double yarn_factors[] = {40, 32};

/// mscale_all_dim of DeepSeek-V3 and Kimi K2, and of DeepSeek-V2: attention's scale is (0.1 w ln s + 1)^2 /
/// sqrt(width) (arXiv:2309.00071 eq. 22, as modeling_deepseek.py has it).
inline constexpr double yarn_score_weights[] = {1, 0.707};

}  // namespace assay
