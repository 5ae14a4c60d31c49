#include "assay/compare/origin/missing_layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace assay {
namespace {

// "model.layers.3" of "model.layers.3.mlp"; empty: of no layer.
std::string_view layer_of(std::string_view module) {
  constexpr std::string_view digits = "0123456789";
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1)) {
    const std::size_t end = std::min(module.find('.', dot + 1), module.size());
    const std::string_view part = module.substr(dot + 1, end - dot - 1);
    if (!part.empty() && part.find_first_not_of(digits) == std::string_view::npos)
      return module.substr(0, end);
  }
  return {};
}

}  // namespace

Diagnosis diagnosis(const MissingLayer& layer) {
  return {Cause::missing_layer, {.elements = layer.count, .module = layer.module}};
}

std::vector<MissingLayer> missing_layers(const std::vector<Finding>& findings, std::int64_t step) {
  struct Layer {
    MissingLayer missing;
    bool is_there = false;
  };
  std::map<std::string_view, Layer> layers;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    if (f.id.step != step || f.id.phase != Phase::forward) continue;
    const std::string_view name = layer_of(f.id.module);
    if (name.empty()) continue;
    Layer& layer = layers[name];
    const bool is_missing = f.verdict == Verdict::missing_actual;
    if (f.id.slot == "param") {
      layer.missing.has_parameters |= !is_missing;
      continue;
    }
    if (layer.missing.count++ == 0) layer.missing.first = i;
    layer.is_there |= !is_missing;
  }
  if (std::ranges::none_of(layers, [](const auto& l) { return l.second.is_there; })) return {};
  std::vector<MissingLayer> missing;
  for (auto& [name, layer] : layers) {
    if (layer.is_there || layer.missing.count == 0) continue;
    layer.missing.module = name;
    missing.push_back(std::move(layer.missing));
  }
  std::ranges::sort(missing, {}, &MissingLayer::first);
  return missing;
}

void fail_missing_layers(std::vector<Finding>& findings) {
  std::set<std::int64_t> steps;
  for (const Finding& f : findings) {
    if (f.verdict == Verdict::missing_actual && f.id.phase == Phase::forward) steps.insert(f.id.step);
  }
  for (const std::int64_t step : steps) {
    const std::vector<MissingLayer> missing = missing_layers(findings, step);
    for (const MissingLayer& layer : missing) {
      Finding& f = findings[layer.first];
      if (!layer.has_parameters) continue;
      f.verdict = Verdict::failed;
      f.diagnoses = {diagnosis(layer)};
      f.reason = "only in the reference";
    }
    if (!missing.empty()) return;
  }
}

bool is_missing_layer(const Finding& f) {
  return !f.diagnoses.empty() && f.diagnoses.front().cause == Cause::missing_layer;
}

}  // namespace assay
