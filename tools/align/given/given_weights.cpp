#include "assay/align/given/given_weights.h"

#include <algorithm>
#include <optional>
#include <set>

#include "assay/align/arithmetic/pieces.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

bool is_initial(const Identity& id) {
  return id.slot == "param" && id.phase == Phase::forward;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Mixtral's checkpoints call the layer of experts and their matrices otherwise.
std::string of_mixtral(std::string name) {
  name = replaced(name, ".mlp.", ".block_sparse_moe.");
  for (const auto& [ours, theirs] :
       {std::pair{"*.gate_proj", "*.w1"}, {"*.down_proj", "*.w2"}, {"*.up_proj", "*.w3"}})
    name = replaced(name, ours, theirs);
  return name;
}

// What a checkpoint may have a second time: the embedding and the head of a layer of multi-token prediction
// (DeepSeek-V3), and a head that is the embedding.
std::optional<std::string> original_of(const std::string& name, bool tied) {
  const std::string embedding = "model.embed_tokens.weight", head = tied ? embedding : "lm_head.weight";
  if (name.starts_with("model.layers.") && name.ends_with(".embed_tokens.weight")) return embedding;
  if (name.ends_with(".shared_head.head.weight") || (tied && name == "lm_head.weight")) return head;
  return std::nullopt;
}

// Not a weight: older versions of transformers have saved what follows from the configuration.
bool is_derived(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

Model model_of_weights(const std::string& path, Model model) {
  if (model.losses.mtp_depth == 0) return model;
  const GivenDump given(path);
  const auto has_layer = [&](std::int64_t number) {
    const std::string layer = "model.layers." + std::to_string(number) + ".";
    return std::ranges::any_of(given.tensors(),
                               [&](const LogicalTensor& t) { return t.id.module.starts_with(layer); });
  };
  if (has_layer(model.layers - 1) && !has_layer(model.layers)) {
    model.losses.mtp_depth = 0;
    model.losses.mtp_weight = 0;
  }
  return model;
}

GivenWeights::GivenWeights(const std::string& path, const Model& model) : given_(path) {
  list();
  for (const Parameter& p : parameters(model)) {
    const Source source = source_of(p);
    check_shapes(p.name, source);
    sources_.emplace(p.name, source);
  }
  check_rest(model);
}

// By checkpoint names; of a dump what the first step that has parameters began with.
void GivenWeights::list() {
  std::optional<std::int64_t> first;
  for (const LogicalTensor& t : given_.tensors()) {
    if (is_initial(t.id)) first = std::min(first.value_or(t.id.step), t.id.step);
  }
  for (const LogicalTensor& t : given_.tensors()) {
    if (is_initial(t.id) && t.id.step == *first) known_[t.id.module + "." + t.id.arg] = &t;
    if (t.id.slot.empty()) known_[t.id.module] = &t;
  }
  if (known_.empty())
    throw Error("{}: has no parameters; expected a checkpoint, or an assay-dump with those before a step",
                given_.path());
}

const GivenWeights::Fused GivenWeights::fused[] = {
    {".*.gate_proj.weight", ".gate_up_proj", Place::first_half},
    {".*.up_proj.weight", ".gate_up_proj", Place::second_half},
    {".*.down_proj.weight", ".down_proj", Place::whole},
};

GivenWeights::Source GivenWeights::source_of(const Parameter& p) const {
  for (const std::string& name : {p.name, of_mixtral(p.name)}) {
    if (const auto one = known_.find(name); one != known_.end())
      return {p.shape, Place::whole, {one->second}};
    if (const auto each = of_each(name, p.shape.front()); !each.empty())
      return {p.shape, Place::of_each_expert, each};
  }
  for (const Fused& f : fused) {
    if (!p.name.ends_with(f.own)) continue;
    const auto all = known_.find(replaced(p.name, f.own, f.theirs));
    if (all != known_.end()) return {p.shape, f.place, {all->second}};
  }
  throw Error("{}: has no tensor '{}', which the model has with shape {}; check --model", given_.path(),
              p.name, assay::to_string(p.shape));
}

// Of "model.layers.3.mlp.experts.*.gate_proj.weight" a tensor of each; empty: of none.
std::vector<const LogicalTensor*> GivenWeights::of_each(const std::string& pattern,
                                                        std::int64_t experts) const {
  std::vector<const LogicalTensor*> parts;
  const auto name_of = [&](std::int64_t expert) { return replaced(pattern, "*", std::to_string(expert)); };
  if (name_of(0) == pattern || !known_.contains(name_of(0))) return parts;
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto part = known_.find(name_of(e));
    if (part == known_.end())
      throw Error("{}: has no tensor '{}'; the model has {} experts", given_.path(), name_of(e), experts);
    parts.push_back(part->second);
  }
  return parts;
}

void GivenWeights::check_shapes(const std::string& parameter, const Source& source) const {
  Shape expected = source.shape;
  if (source.place == Place::of_each_expert) expected.erase(expected.begin());
  if (source.place == Place::first_half || source.place == Place::second_half) expected[1] *= 2;
  for (const LogicalTensor* part : source.parts) {
    if (part->shape != expected || !is_float(part->dtype))
      throw Error("{}: '{}' is {} {}; the model's '{}' takes floating-point numbers of shape {}",
                  given_.path(), to_string(part->id), name(part->dtype), assay::to_string(part->shape),
                  parameter, assay::to_string(expected));
  }
}

void GivenWeights::check_rest(const Model& model) const {
  std::set<const LogicalTensor*> taken;
  for (const auto& [name, source] : sources_) taken.insert(source.parts.begin(), source.parts.end());
  for (const auto& [name, tensor] : known_) {
    if (taken.contains(tensor) || is_derived(name)) continue;
    const std::optional<std::string> original = original_of(name, model.tied_embeddings);
    if (!original)
      throw Error("{}: '{}' {} is no parameter of the model {}; check --model, or leave the tensor out",
                  given_.path(), name, assay::to_string(tensor->shape), model.name);
    check_copy(name, *original);
  }
}

void GivenWeights::check_copy(const std::string& name, const std::string& original) const {
  const Tensor copy = given_.read(*known_.at(name)), kept = given_.read(*sources_.at(original).parts.front());
  if (copy.dtype() != kept.dtype() || !std::ranges::equal(copy.bytes(), kept.bytes()))
    throw Error("{}: '{}' differs from '{}'; the model has one tensor for both", given_.path(), name,
                original);
}

Tensor GivenWeights::parameter(const std::string& name) const {
  const Source& source = sources_.at(name);
  std::vector<double> values;
  for (const LogicalTensor* part : source.parts) {
    Tensor t = given_.read(*part);
    if (source.place == Place::first_half) t = piece_of(t, 1, 0, 2);
    if (source.place == Place::second_half) t = piece_of(t, 1, 1, 2);
    const std::vector<double> more = t.values();
    values.insert(values.end(), more.begin(), more.end());
  }
  return {source.shape, std::span<const double>(values)};
}

}  // namespace assay::align
