// The norm of all gradients, and clipping by it.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"
#include "assay/align/strategies/data_parallel.h"

namespace assay::align {
namespace {

using namespace plant;

std::int64_t at(const FaultScene& s, Axis axis) {
  return s.ranks.mesh().coordinate(axis);
}

// Each rank clips by the norm of a part of the gradients.
/// @param together  sum the squares over all ranks
/// @param group     of which group a parameter is
PlantFault clip_by(bool together, std::function<int(const std::string&)> group) {
  return [=](const FaultScene& scene) {
    const auto squares = std::make_shared<std::array<double, 2>>();
    FaultSites sites;
    sites.gradient = [=](const Moment&, const std::string& name, Tensor& g) {
      const bool counts =
          !together || counts_once(scene.ranks.mesh(), scene.plan.at(name), is_of_experts(name), {});
      for (const double x : g.values())
        (*squares)[static_cast<std::size_t>(group(name))] += counts ? x * x : 0;
    };
    const auto norms = std::make_shared<std::array<double, 2>>();
    sites.norm = [=](double&) {
      *norms = {};
      if (together) {
        for (const Tensor& t :
             scene.ranks.communicator().all_gather(scene.ranks.mesh().all_ranks(), "the norms of groups",
                                                   Tensor({2}, std::span<const double>(*squares)))) {
          for (std::size_t k = 0; k < 2; ++k) (*norms)[k] += t.values()[k];
        }
      } else {
        *norms = *squares;
      }
      *squares = {};
    };
    sites.clip = [=](const std::string& name, double& coefficient) {
      coefficient = clip_coefficient(scene.settings.optimizer,
                                     std::sqrt((*norms)[static_cast<std::size_t>(group(name))]));
    };
    return sites;
  };
}

PlantFault clip_with(std::function<double(const FaultScene&, double norm)> coefficient_of) {
  return [=](const FaultScene& scene) {
    const auto norm = std::make_shared<double>();
    FaultSites sites;
    sites.norm = [=](double& n) { *norm = n; };
    sites.clip = [=](const std::string&, double& coefficient) { coefficient = coefficient_of(scene, *norm); };
    return sites;
  };
}

double of_first_tp(const FaultScene& s, double right) {
  return at(s, Axis::tp) == 0 ? right : 0;
}

}  // namespace

std::vector<Fault> norm_faults() {
  const std::string_view area = "norm";
  // The norm is well above 1: clipping is active.
  const FaultAnswer norm = {"optimizer", "step loss grad_norm*", "", {{Cause::norm}}},
                    params = {"optimizer", "* param *|* state *", "", {{Cause::clip}}};
  const FaultConditions tp2 = {.parallel = "tp=2"},
                        tied = {.parallel = "pp=2", .model = "telechat3-105b-tiny,tied_embeddings=true"};
  return {
      {"F101",
       area,
       "the norm counts experts over the wrong group: of the first tp rank only",
       "Mcore#6470, radixark#80",
       FaultKind::norm,
       {.parallel = "tp=2,ep=2"},
       norm,
       count_in_norm("*.experts.*", of_first_tp)},
      {"F102", area, "replicated weights are marked as tensor parallel: they count tp times in the norm",
       "ROCm TE#715", FaultKind::norm, tp2, norm,
       count_in_norm("*_a_proj*", [](const FaultScene&, double) { return 1; })},
      {"F103", area, "the tied embedding counts twice in the norm", "Mcore#7227", FaultKind::norm, tied, norm,
       count_in_norm("model.embed_tokens.weight", [](const FaultScene&, double) { return 1; })},
      {"F104", area, "of attention the norm counts the heads of the first tp rank only",
       "Mcore#7452-F8, PR#7530", FaultKind::norm, tp2, norm,
       count_in_norm("*.self_attn.q_b_proj.weight", of_first_tp)},
      {"F105",
       area,
       "experts count in the norm once for each rank that holds them",
       "Mcore#5916, #6099",
       FaultKind::norm,
       {.parallel = "dp=4,ep=2"},
       norm,
       count_in_norm("*.experts.*", [](const FaultScene&, double) { return 1; })},
      {"F107",
       area,
       "dense parameters and experts are clipped by norms of their own",
       "Mcore abf10f8590",
       FaultKind::norm,
       {.parallel = "dp=2,ep=2"},
       params,
       clip_by(true, [](const std::string& name) { return is_of_experts(name) ? 1 : 0; })},
      {"F108", area, "each rank clips by the norm of its own gradients",
       "PT#170862, #72548, TT#596, DS#5411, DS#1801", FaultKind::partial, tp2, params,
       clip_by(false, [](const std::string&) { return 0; })},
      {"F109",
       area,
       "the clip coefficient may be larger than 1: small gradients are scaled up",
       "DS#5150",
       FaultKind::norm,
       {.optimizer = "adamw,max_norm=100"},
       params,
       clip_with([](const FaultScene& s, double n) { return s.settings.optimizer.max_norm / n; })},
      {"F115",
       area,
       "the squared norm overflows in float16: gradients are clipped to nothing",
       "fairscale#263",
       FaultKind::norm,
       {},
       {"optimizer", "* param *|* state *", "", {{Cause::clip, {.value = 0}}, {Cause::not_updated}}},
       clip_with([](const FaultScene&, double) { return 0; })},
      {"F129", area, "an attribute is missing: the norm counts the first rank's shards only", "MS 1d5bd2bc",
       FaultKind::norm, tp2, norm, count_in_norm("*", of_first_tp)},
  };
}

}  // namespace assay::align
