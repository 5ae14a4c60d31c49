// Losses and gradients that count too much or too little.
#include <cmath>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"

namespace assay::align {
namespace {

using namespace plant;

double sequences(const FaultScene& s) {
  return static_cast<double>(s.settings.batch.sequences);
}
double tokens(const FaultScene& s) {
  return static_cast<double>(s.settings.batch.tokens() * s.settings.micro_batches);
}
double etp_over_tp(const FaultScene& s) {
  return static_cast<double>(s.settings.parallel.etp) / static_cast<double>(s.settings.parallel.tp);
}
double mtp_depths(const FaultScene& s) {
  return static_cast<double>(s.model.losses.mtp_depth);
}

// A stage does with the gradient from the next what it did with the loss already.
PlantFault divide_at_every_stage() {
  return [](const FaultScene& scene) {
    FaultSites sites;
    sites.received = [=](const Moment&, std::string_view what, std::int64_t, Tensor& t) {
      if (what == "gradient") t = scaled(t, 1 / micro_batches(scene));
    };
    return sites;
  };
}

// The last target of what a rank has of a sequence is the first one that it has.
PlantFault shift_labels_after_split() {
  return [](const FaultScene& scene) {
    FaultSites sites;
    sites.indices = [=](const Moment&, const std::string& name, Tensor& t) {
      if (name != "targets") return;
      std::vector<std::int64_t> targets = t.indices();
      const auto row = static_cast<std::size_t>(scene.settings.batch.sequences);
      const bool is_last = scene.ranks.mesh().coordinate(Axis::cp) + 1 == scene.ranks.mesh().size(Axis::cp);
      for (std::size_t s = 0; s < row && !is_last; ++s) targets[targets.size() - row + s] = targets[s];
      t = Tensor::from_indices(t.shape(), targets);
    };
    const FactorOf share = one_over(cp);
    sites.loss_share = [=](const Moment&, const Loss& loss, double& shown, double& in_gradient) {
      if (loss.name != "cross_entropy") return;
      shown *= share(scene);
      in_gradient *= share(scene);
    };
    return sites;
  };
}

// Every micro-batch counts as much, whatever of it counts.
PlantFault mean_of_means(std::string losses) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.loss_share = [=](const Moment&, const Loss& loss, double& shown, double& in_gradient) {
      const bool meant =
          losses == "*" ? loss.mean_of == MeanOf::targets : loss.name.find(losses) != std::string::npos;
      if (meant) shown = in_gradient = 1 / static_cast<double>(scene.settings.micro_batches);
    };
    return sites;
  };
}

}  // namespace

std::vector<Fault> loss_scale_faults() {
  const std::string_view area = "loss scale", grads = "* grad*", experts = "*.experts.* grad weight*";
  const FaultConditions of_experts = {.parallel = "tp=2,dp=3,ep=2", .micro_batches = 3},
                        tokens_counted = {.loss_average = "tokens", .prompt = 0.75};
  return {
      {"F023",
       area,
       "the loss is multiplied by cp, gradients are divided by dp alone",
       "Mcore#673, #906, 3bdcbbbe5d; TTrace 3",
       FaultKind::scale,
       {.parallel = "dp=3,cp=2", .micro_batches = 3},
       {"backward", grads, "cp", {factor_named("cp")}},
       scale_loss("*", one, cp)},
      {"F024",
       area,
       "the mean over micro-batches of means, not the sum over the sum of tokens",
       "Mcore adfa873d96; HF#34191; TTrace 4",
       FaultKind::weights,
       tokens_counted,
       {"forward", "step loss loss*", "", {{Cause::weights, {.micro_batches = {0, 1, 2, 3}}}}},
       mean_of_means("*")},
      {"F025",
       area,
       "the loss counts as many times too much as there are micro-batches",
       "HF#37197",
       FaultKind::scale,
       {.micro_batches = 6},
       {"backward", grads, "micro-batches", {factor_named("micro-batches")}},
       scale_loss("*", one, micro_batches)},
      {"F026",
       area,
       "experts' gradients are not divided by dp",
       "Mcore 3373641ff1",
       FaultKind::scale,
       of_experts,
       {"backward", experts, "dp", {factor_named("dp")}},
       scale_gradient("*.experts.*", dp)},
      {"F027",
       area,
       "experts' gradients are scaled by the sizes of the wrong groups: etp/tp",
       "Mcore 4f8974a400",
       FaultKind::scale,
       {.parallel = "tp=2,dp=3", .micro_batches = 3},
       {"backward", experts, "tp", {factor_named("1/tp")}},
       scale_gradient("*.experts.*", etp_over_tp)},
      {"F028",
       area,
       "experts' gradients are not divided by ep",
       "Mcore#5956, #6450",
       FaultKind::scale,
       {.parallel = "tp=2,dp=3,ep=3", .micro_batches = 3},
       {"backward", experts, "ep", {factor_of(3)}},
       scale_gradient("*.experts.*", ep)},
      {"F029",
       area,
       "experts' gradients are averaged over the ranks with the same experts only",
       "DS#5259, #5618, #6545, #6546",
       FaultKind::scale,
       {.parallel = "dp=4,ep=2,zero=1"},
       {"backward", experts, "ep", {factor_of(2)}},
       scale_gradient("*.experts.*", ep)},
      {"F030",
       area,
       "experts' gradients are divided twice",
       "DS#4957",
       FaultKind::scale,
       {.parallel = "tp=2,dp=3,ep=2,zero=2", .micro_batches = 3},
       {"backward", experts, "dp", {factor_of(1. / 3)}},
       scale_gradient("*.experts.*", one_over(edp))},
      {"F031",
       area,
       "gradients are divided by the sequence parallel ranks too",
       "DS#5555",
       FaultKind::scale,
       {.parallel = "dp=3,cp=2,context=ulysses", .micro_batches = 3},
       {"backward", grads, "cp", {factor_named("1/cp")}},
       scale_loss("*", one, one_over(cp))},
      {"F032",
       area,
       "every stage divides the gradient that it gets by the micro-batches again",
       "DS#8154",
       FaultKind::scale,
       {.parallel = "pp=2", .micro_batches = 6},
       {"backward", "model.layers.1* grad_*", "pp", {factor_named("1/micro-batches")}},
       divide_at_every_stage()},
      {"F033",
       area,
       "gradients are scaled after each accumulation: older micro-batches count less",
       "TT#1733, #1732",
       FaultKind::weights,
       {.micro_batches = 6},
       {"backward", "* grad weight*", "", {counted({1. / 7776, 1. / 1296, 1. / 216, 1. / 36, 1. / 6, 1})}},
       weigh_micro_batches("*",
                           [](const FaultScene&, std::int64_t m, std::int64_t n) {
                             return std::pow(1 / static_cast<double>(n), static_cast<double>(n - 1 - m));
                           })},
      {"F034",
       area,
       "gradients are not divided by the number of tokens",
       "TT#2972",
       FaultKind::scale,
       {.loss_average = "tokens"},
       {"backward", grads, "", {{Cause::factor}}},
       scale_loss("*", one, tokens)},
      {"F035",
       area,
       "the gradient buffer is added to itself with every micro-batch",
       "Mcore#6660",
       FaultKind::weights,
       {.micro_batches = 6},
       {"backward", "* grad weight*", "", {counted({32, 16, 8, 4, 2, 1})}},
       weigh_micro_batches("*", [](const FaultScene&, std::int64_t m,
                                   std::int64_t n) { return std::exp2(static_cast<double>(n - 1 - m)); })},
      {"F036",
       area,
       "gradients are never finalized: not divided by the number of tokens",
       "MB#4974, #6067",
       FaultKind::scale,
       {.loss_average = "tokens"},
       {"backward", "* grad weight*", "", {{Cause::factor}}},
       scale_gradient("*", tokens)},
      {"F037",
       area,
       "the loss is divided by the ranks of sequence parallel",
       "VeOmni#338",
       FaultKind::scale,
       {.parallel = "tp=2,sp=1,dp=3", .micro_batches = 3},
       {"forward", "step loss loss*", "tp", {factor_named("1/tp")}},
       scale_loss("*", one_over(tp), one_over(tp))},
      {"F038",
       area,
       "labels are shifted after the sequence is cut, and the loss divided by cp",
       "verl#4250",
       FaultKind::perm,
       {.parallel = "cp=2,context=ulysses"},
       {"forward", "lm_head input target*", "cp", {{Cause::repeated}, {Cause::shifted}, {Cause::permuted}}},
       shift_labels_after_split()},
      {"F039",
       area,
       "gradients are divided by a loss scale that was never applied",
       "DS#7839",
       FaultKind::scale,
       {},
       {"backward", "* grad weight*", "", {factor_named("2^-16")}},
       scale_gradient("*", constant(0x1p-16))},
      {"F040",
       area,
       "the loss of multi-token prediction is divided by cp",
       "Mcore#3943, #2417",
       FaultKind::scale,
       {.parallel = "dp=3,cp=2", .micro_batches = 3},
       {"backward", "*.shared_head* grad_*", "cp", {factor_named("1/cp")}},
       scale_loss("*.shared_head", one, one_over(cp))},
      {"F041",
       area,
       "the loss of multi-token prediction is normalized by local counts",
       "Mcore#7452-F3",
       FaultKind::weights,
       tokens_counted,
       {"forward", "step loss loss*", "", {{Cause::weights, {.micro_batches = {0, 1, 2, 3}}}}},
       mean_of_means("shared_head")},
      {"F042",
       area,
       "the scale of the multi-token prediction loss is not set under an interleaved schedule",
       "MS c1cc5448",
       FaultKind::scale,
       {.parallel = "pp=2,vpp=2,schedule=interleaved", .micro_batches = 6},
       {"backward", "*.shared_head* grad_*", "", {factor_named("micro-batches")}},
       scale_loss("*.shared_head", one, micro_batches)},
      {"F044",
       area,
       "under averaging by tokens the balance loss misses its factor tp x cp",
       "Mcore#5047, 0bb194b467",
       FaultKind::scale,
       {.parallel = "tp=2,sp=1,cp=2,dp=3", .loss_average = "tokens", .micro_batches = 3},
       {"backward", "*.mlp* grad_*", "tp", {factor_of(1. / 4)}},
       scale_loss("*.balance", one, one_over(times(tp, cp)))},
      {"F045",
       area,
       "the sequence balance loss keeps its division by the sequences",
       "Mcore#5798, 1d54332e42",
       FaultKind::scale,
       {.loss_average = "tokens", .sequences = 3},
       {"backward", "*.mlp* grad_*", "", {factor_of(1. / 3)}},
       scale_loss("*.balance", one, one_over(sequences))},
      {"F135",
       area,
       "the loss of multi-token prediction is not averaged over its depths",
       "Mcore#1532, #3959",
       FaultKind::scale,
       {.model = "telechat3-105b-tiny,losses.mtp_depth=3"},
       {"backward", "*.shared_head* grad_*", "", {factor_of(3)}},
       scale_loss("*.shared_head", one, mtp_depths)},
      {"F148",
       area,
       "the pipeline drops the backward of a micro-batch",
       "schedules of moe-training",
       FaultKind::weights,
       {.parallel = "pp=2"},
       {"backward", "* grad weight*", "", {counted({1, 0, 1, 1})}},
       weigh_micro_batches("*",
                           [](const FaultScene&, std::int64_t m, std::int64_t) { return m == 1 ? 0 : 1; })},
  };
}

}  // namespace assay::align
