#include "assay/align/settings/optimizer_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "assay/align/settings/settings_keys.h"

namespace assay::align {
namespace {

using S = OptimizerSettings;

// In the order of the enumerators.
const std::vector<std::string_view>& names() {
  static const std::vector<std::string_view> all = {"adamw",           "adam-l2", "torch-adamw", "torch-adam",
                                                    "mindspore-adamw", "eps-hat", "muon"};
  return all;
}

const std::vector<SettingsKey<S>>& optimizer_keys() {
  constexpr double most = std::numeric_limits<double>::max(),
                   below_one = 1 - std::numeric_limits<double>::epsilon() / 2;
  static const std::vector<SettingsKey<S>> all = {
      real_key("lr", &S::lr, 0, most),
      real_key("beta1", &S::beta1, 0, below_one),
      real_key("beta2", &S::beta2, 0, below_one),
      real_key("eps", &S::eps, 0, most),
      real_key("weight_decay", &S::weight_decay, 0, most),
      choice_key("decay", &S::decay, {"matrices", "all", "no-beta-gamma"}),
      real_key("max_norm", &S::max_norm, 0, most),
      choice_key("clip", &S::clip, {"torch", "mindformers", "none"}),
      real_key("momentum", &S::momentum, 0, below_one),
      choice_key("matrix", &S::matrix, {"whole", "blockwise"}),
      flag_key("muon_routers", &S::muon_routers),
  };
  return all;
}

// Who calls an optimizer by its name means the defaults of its signature: torch.optim.AdamW and Adam of torch
// 2.13, mindspore.nn.AdamWeightDecay of MindSpore 2.7.
OptimizerSettings defaults_of(OptimizerName name) {
  OptimizerSettings o;
  o.name = name;
  if (name == OptimizerName::torch_adamw || name == OptimizerName::torch_adam) {
    o.beta2 = 0.999;
    o.weight_decay = name == OptimizerName::torch_adamw ? 0.01 : 0;
    o.decay = DecayRule::all;
  }
  if (name == OptimizerName::mindspore_adamw) {
    o.beta2 = 0.999;
    o.eps = 1e-6;
    o.weight_decay = 0;
    o.decay = DecayRule::no_beta_gamma;
    o.clip = ClipRule::mindformers;
  }
  return o;
}

}  // namespace

OptimizerSettings parse_optimizer(std::string_view text) {
  std::vector<std::string_view> pieces = split(text, ',');
  if (pieces.empty()) throw Error("--optimizer: is empty; expected {}", listed(names()));
  std::size_t name = 0;
  const std::string expected = read_choice(pieces.front(), names(), name);
  if (!expected.empty()) throw Error("--optimizer: begins with '{}'; expected {}", pieces.front(), expected);
  OptimizerSettings settings = defaults_of(static_cast<OptimizerName>(name));
  pieces.erase(pieces.begin());
  read_settings("--optimizer", optimizer_keys(), pieces, settings);
  return settings;
}

std::string to_string(const OptimizerSettings& o) {
  std::vector<std::string> all = written_settings(optimizer_keys(), o, defaults_of(o.name));
  all.insert(all.begin(), std::string(names()[static_cast<std::size_t>(o.name)]));
  return fmt::format("{}", fmt::join(all, ","));
}

bool decays(const OptimizerSettings& o, std::string_view parameter, const Shape& shape) {
  const auto has = [&](std::string_view part) { return parameter.find(part) != std::string_view::npos; };
  switch (o.decay) {
    case DecayRule::matrices:
      return shape.size() > 1;
    case DecayRule::all:
      return true;
    case DecayRule::no_beta_gamma:
      return !has("beta") && !has("gamma");
  }
  return true;
}

// Moonlight's example and Megatron-LM leave out vectors, embeddings and heads, and nothing else.
bool by_muon(const OptimizerSettings& o, std::string_view parameter, const Shape& shape) {
  const bool embedding = parameter.starts_with("model.embed_tokens."), head = parameter == "lm_head.weight",
             router = parameter.ends_with(".gate.weight");
  return o.name == OptimizerName::muon && shape.size() > 1 && !embedding && !head &&
         (o.muon_routers || !router);
}

double clip_coefficient(const OptimizerSettings& o, double norm) {
  constexpr double eps = 1e-6;  // torch.nn.utils.clip_grad_norm_, Megatron-LM clip_grads.py
  // 0 is no clipping to Megatron-LM (clip_grad), DeepSpeed (gradient_clipping) and transformers
  // (max_grad_norm).
  if (o.clip == ClipRule::none || o.max_norm == 0) return 1;
  return std::min(1.0, o.max_norm / (o.clip == ClipRule::torch ? norm + eps : norm));
}

}  // namespace assay::align
