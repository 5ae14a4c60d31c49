// Shards of optimizer states and parameters, buffers of gradients, and what overlaps with them.
#include <map>
#include <memory>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/initial.h"
#include "assay/align/step/training_step.h"
#include "assay/dumps/record/glob.h"

namespace assay::align {
namespace {

using namespace plant;
using Tensors = std::map<std::string, Tensor>;

// Flat places [begin, end) of n equal shards of a piece, as ZeRO cuts it.
struct Shard {
  std::size_t begin, end;
};
Shard shard_of(std::int64_t size, std::int64_t k, std::int64_t n) {
  const std::int64_t each = (size + n - 1) / n;
  return {static_cast<std::size_t>(k * each), static_cast<std::size_t>((k + 1) * each)};
}

Axis sharding_axis(const std::string& parameter) {
  return is_of_experts(parameter) ? Axis::edp : Axis::dp;
}

using ChangeAfter = std::function<void(const FaultScene&, const Moment&, const std::string&,
                                       const Tensor& before, Tensor& after)>;
PlantFault after_update(ChangeAfter change) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.after_update = [=](const Moment& now, const std::string& name, const Tensor& before,
                             Tensor& after) { change(scene, now, name, before, after); };
    return sites;
  };
}

// The shards of other ranks stay what they were.
void keep_foreign_shards(const FaultScene& s, const Moment&, const std::string& name, const Tensor& before,
                         Tensor& after) {
  const Axis axis = sharding_axis(name);
  const Shard own = shard_of(after.size(), s.ranks.mesh().coordinate(axis), s.ranks.mesh().size(axis));
  const std::vector<double> old = before.values();
  after = changed(after, [&](std::size_t i, double x) { return i >= own.begin && i < own.end ? x : old[i]; });
}

// A rank takes the updated values of its neighbour's shard for those of its own.
void write_foreign_slice(const FaultScene& s, const Moment&, const std::string& name, const Tensor&,
                         Tensor& after) {
  const Axis axis = sharding_axis(name);
  const std::int64_t n = s.ranks.mesh().size(axis), me = s.ranks.mesh().coordinate(axis);
  const Shard own = shard_of(after.size(), me, n), other = shard_of(after.size(), (me + 1) % n, n);
  const std::vector<double> x = after.values();
  after = changed(after, [&](std::size_t i, double right) {
    const std::size_t from = i - own.begin + other.begin;
    return i >= own.begin && i < own.end && from < x.size() ? x[from] : right;
  });
}

// The last micro-batch does not get into the sum over ranks; each rank adds its own to it.
PlantFault last_micro_batch_stays_local() {
  return [](const FaultScene& scene) {
    const auto last = std::make_shared<Tensors>();
    FaultSites sites;
    sites.contribution = [=](const Moment& now, const std::string& name, Tensor& open) {
      if (now.micro_batch < scene.settings.micro_batches - scene.settings.parallel.dp) return;
      (*last)[name] = scene.ranks.arithmetic().close(open);
      open = changed_open(scene, open, [](std::size_t, double) { return 0; });
    };
    sites.gradient = [=](const Moment&, const std::string& name, Tensor& gradient) {
      const auto at = last->find(name);
      if (at == last->end() || at->second.shape() != gradient.shape()) return;
      const std::vector<double> more = at->second.values();
      gradient = changed(gradient, [&](std::size_t i, double x) { return x + more[i]; });
    };
    return sites;
  };
}

// Gradients plus something that was in the buffer: of the step before, of another parameter, or the
// parameter.
PlantFault add_what_was_there(std::string parameters, std::function<std::string(const std::string&)> whose,
                              bool is_gradient, double factor) {
  return [=](const FaultScene&) {
    const auto known = std::make_shared<Tensors>();
    FaultSites sites;
    if (!is_gradient)
      sites.parameter = [=](const Moment&, const std::string& name, Tensor& piece) {
        (*known)[name] = piece;
      };
    sites.gradient = [=](const Moment&, const std::string& name, Tensor& gradient) {
      const Tensor right = gradient;
      const auto at = known->find(whose(name));
      if (glob_match(parameters, name) && at != known->end() && at->second.size() == gradient.size()) {
        const std::vector<double> more = at->second.values();
        gradient = changed(gradient, [&](std::size_t i, double x) { return x + factor * more[i]; });
      }
      if (is_gradient) (*known)[name] = right;
    };
    return sites;
  };
}

// A bucket's parameters are those of the step before until the gather has ended.
PlantFault stale_parameters(std::string parameters) {
  return [=](const FaultScene&) {
    const auto of_step = std::make_shared<std::map<std::string, std::pair<std::int64_t, Tensor>>>();
    const auto old = std::make_shared<Tensors>();
    FaultSites sites;
    sites.parameter = [=](const Moment& now, const std::string& name, Tensor& piece) {
      if (!glob_match(parameters, name)) return;
      const auto [at, is_new] = of_step->try_emplace(name, now.step, piece);
      if (!is_new && at->second.first < now.step) {
        (*old)[name] = at->second.second;
        at->second = {now.step, piece};
      }
      if (old->contains(name)) piece = old->at(name);
    };
    return sites;
  };
}

}  // namespace

std::vector<Fault> zero_faults() {
  const std::string_view area = "zero";
  const FaultConditions zero1 = {.parallel = "dp=2,zero=1"}, zero2 = {.parallel = "dp=2,zero=2"};
  const auto same = [](const std::string& name) { return name; };
  return {
      {"F090",
       area,
       "updated shards are not gathered: a rank keeps the old values of the others",
       "Mcore#663, 33111c9c9a; TTrace 8",
       FaultKind::zero,
       zero1,
       {"optimizer", "* param *", "", {{Cause::not_updated, {.axis = "dp"}}}},
       after_update(keep_foreign_shards)},
      {"F091",
       area,
       "experts' parameters are not in the optimizer",
       "Mcore#565",
       FaultKind::zero,
       {.parallel = "dp=2,ep=2,zero=1"},
       {"optimizer", "*.experts.* param *", "", {{Cause::not_updated}}},
       after_update([](const FaultScene&, const Moment&, const std::string& name, const Tensor& before,
                       Tensor& after) {
         if (is_of_experts(name)) after = before;
       })},
      {"F092",
       area,
       "the id of a partition is wrong: a rank writes another rank's slice",
       "DS#2058",
       FaultKind::perm,
       zero1,
       {"optimizer", "* param *", "", {{Cause::repeated}}},
       after_update(write_foreign_slice)},
      {"F093",
       area,
       "only the gradient of the first micro-batch is copied",
       "DS#7967, #6550",
       FaultKind::weights,
       {.micro_batches = 6},
       {"backward", "* grad *", "", {counted({1, 0, 0, 0, 0, 0})}},
       weigh_micro_batches("*",
                           [](const FaultScene&, std::int64_t m, std::int64_t) { return m == 0 ? 1 : 0; })},
      {"F094",
       area,
       "only the gradient of the last micro-batch is kept",
       "DS#7981",
       FaultKind::weights,
       {.micro_batches = 6},
       {"backward", "* grad *", "", {counted({0, 0, 0, 0, 0, 1}), {Cause::stale}}},
       weigh_micro_batches(
           "*", [](const FaultScene&, std::int64_t m, std::int64_t n) { return m + 1 == n ? 1 : 0; })},
      {"F095",
       area,
       "the last micro-batch is added to the local buffer after the all-reduce",
       "DS#7985",
       FaultKind::weights,
       zero1,
       {"backward", "* grad *", "dp", {counted({1, 1, 0, 0})}},
       last_micro_batch_stays_local()},
      {"F096",
       area,
       "a gradient is added twice where the update is immediate",
       "DS#5605",
       FaultKind::scale,
       {.parallel = "pp=2"},
       {"backward", "lm_head grad weight*", "", {factor_of(2)}},
       scale_gradient("lm_head.weight", constant(2))},
      {"F097",
       area,
       "a bucket is overwritten before it is reduced",
       "DS#5606, #7965, #8061, #5523, #5545, #7805",
       FaultKind::none,
       zero2,
       {"backward", "model.layers.2* grad *", ""},
       change_gradient("model.layers.2.*",
                       [](const FaultScene&, const Moment& now, const std::string& name, Tensor& g) {
                         const std::vector<double> noise = drawn(name + std::to_string(now.step), g.size());
                         g = changed(
                             g, [&](std::size_t i, double x) { return i % 2 == 0 ? x : 0.01 * noise[i]; });
                       })},
      {"F098",
       area,
       "a buffer of gradients that was used for parameters is not zeroed",
       "Mcore#5222, #4609",
       FaultKind::add,
       zero1,
       {"backward",
        "model.layers.2* grad *",
        "",
        {{Cause::added, {.factor = 0x1p-6, .term = "its parameter before the step"}}}},
       add_what_was_there("model.layers.2.*", same, false, 0x1p-6)},
      {"F099",
       area,
       "experts' gate gradients get what the up matrices' kernel wrote",
       "MS 5cce8736",
       FaultKind::add,
       {.parallel = "ep=2,dp=2"},
       {"backward", "*.experts.*up_proj grad *", "", {{Cause::added, {.factor = 1}}}},
       add_what_was_there(
           "*.experts.*.up_proj.weight",
           [](const std::string& name) {
             std::string other = name;
             const std::size_t at = name.find("up_proj");
             return at == std::string::npos ? other : other.replace(at, 7, "gate_proj");
           },
           true, 1)},
      {"F100",
       area,
       "a gather of parameters is not waited for: the first use has those of the step before",
       "Mcore 71a30fb372; TTrace 11",
       FaultKind::call,
       {.parallel = "dp=2,zero=3"},
       {"forward", "model.layers.2*", "", {operand_of("", "", {Cause::stale, {.step = 0}})}},
       stale_parameters("model.layers.2.*")},
      {"F121",
       area,
       "the first micro-batch of a step is added to the gradient of the step before",
       "TE#2936",
       FaultKind::weights,
       {},
       {"backward",
        "* grad *",
        "",
        {{Cause::added, {.factor = 1, .term = "its gradient of the step before"}}}},
       add_what_was_there("*", same, true, 1)},
      {"F153",
       area,
       "the optimizer reads a bucket before it is reduced",
       "cf. 71a30fb372",
       FaultKind::partial,
       {.parallel = "dp=2"},
       {"backward", "model.layers.2* grad *", "dp", {partial_over("dp")}},
       skip_sum("model.layers.2.*", {Axis::dp, Axis::edp})},
      {"F156",
       area,
       "a checkpoint that is cut anew gives the second moments to the wrong owner",
       "Mcore#1570, #761, PR#1770, #2789; DS#6771",
       FaultKind::perm,
       zero1,
       {"optimizer", "* *", "", {{Cause::permuted}}},
       change_update("*",
                     [](const FaultScene&, const Moment& now, UpdateSite& site) {
                       if (now.step != 1) return;
                       for (NamedTensor& state : site.state) {
                         const std::vector<double> x = state.tensor.values();
                         state.tensor = changed(state.tensor,
                                                [&](std::size_t i, double) { return x[x.size() - 1 - i]; });
                       }
                     })},
  };
}

}  // namespace assay::align
