#include "assay/align/faults/plants.h"

#include <algorithm>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/step/training_step.h"
#include "assay/dumps/record/glob.h"
#include "assay/golden/error.h"

namespace assay::align::plant {
namespace {

const Parallel& parallel(const FaultScene& s) {
  return s.settings.parallel;
}

// A pattern is written for a model; in another one it may mean nothing.
void expect_parameters(const FaultScene& scene, const std::string& pattern) {
  const bool any =
      std::ranges::any_of(scene.plan, [&](const auto& p) { return glob_match(pattern, p.first); });
  if (!any) throw Error("the fault is one of parameters '{}', of which the model has none", pattern);
}

// Its piece of what it gives; of a sum its own share.
Tensor kept(const FaultScene& scene, const Movement& m, const Tensor& x, std::size_t leading) {
  const std::vector<int> group = ranks_of(m, scene.ranks.mesh());
  const auto n = static_cast<std::int64_t>(group.size());
  const auto me = std::ranges::find(group, scene.ranks.mesh().rank()) - group.begin();
  switch (m.kind) {
    case Kind::reduce_scatter:
      return piece_of(x, m.dim + leading, me, n);
    case Kind::all_gather:
      return joined(std::vector<Tensor>(group.size(), x), m.dim + leading);
    case Kind::all_to_all:
      throw Error("an all-to-all that is left out leaves no tensor of the right shape");
    default:
      return x;
  }
}

bool is_sum(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

}  // namespace

double tp(const FaultScene& s) {
  return static_cast<double>(parallel(s).tp);
}
double cp(const FaultScene& s) {
  return static_cast<double>(parallel(s).cp);
}
double dp(const FaultScene& s) {
  return static_cast<double>(parallel(s).dp);
}
double ep(const FaultScene& s) {
  return static_cast<double>(parallel(s).ep);
}
double edp(const FaultScene& s) {
  return static_cast<double>(s.ranks.mesh().size(Axis::edp));
}
double micro_batches(const FaultScene& s) {
  return static_cast<double>(s.settings.micro_batches / parallel(s).dp);
}
FactorOf one_over(FactorOf f) {
  return [f = std::move(f)](const FaultScene& s) { return 1 / f(s); };
}
FactorOf times(FactorOf a, FactorOf b) {
  return [a = std::move(a), b = std::move(b)](const FaultScene& s) { return a(s) * b(s); };
}
FactorOf constant(double c) {
  return [c](const FaultScene&) { return c; };
}

Tensor changed(const Tensor& t, const std::function<double(std::size_t, double)>& f) {
  std::vector<double> values = t.values();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = f(i, values[i]);
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

Tensor changed_open(const FaultScene& scene, const Tensor& open,
                    const std::function<double(std::size_t, double)>& f) {
  const Arithmetic& arithmetic = scene.ranks.arithmetic();
  return arithmetic.open(changed(arithmetic.close(open), f));
}

Tensor rounded(const Tensor& t, DType dtype) {
  return Tensor::from_values(t.dtype(), t.shape(),
                             Tensor::from_values(dtype, t.shape(), t.values()).values());
}

Tensor rounded_open(const FaultScene& scene, const Tensor& open, DType dtype) {
  const Arithmetic& arithmetic = scene.ranks.arithmetic();
  return arithmetic.open(rounded(arithmetic.close(open), dtype));
}

PlantFault skip_sum(std::string parameters, std::vector<Axis> axes) {
  return [=](const FaultScene& scene) {
    expect_parameters(scene, parameters);
    FaultSites sites;
    sites.reduction = [=](const std::string& name, PlannedParameter& planned) {
      if (!glob_match(parameters, name)) return;
      std::erase_if(planned.summed_over, [&](Axis a) { return std::ranges::find(axes, a) != axes.end(); });
    };
    return sites;
  };
}

PlantFault change_gradient(std::string parameters, Change change) {
  return [=](const FaultScene& scene) {
    expect_parameters(scene, parameters);
    FaultSites sites;
    sites.gradient = [=](const Moment& now, const std::string& name, Tensor& gradient) {
      if (glob_match(parameters, name)) change(scene, now, name, gradient);
    };
    return sites;
  };
}

PlantFault scale_gradient(std::string parameters, FactorOf factor) {
  return change_gradient(std::move(parameters),
                         [factor](const FaultScene& scene, const Moment&, const std::string&, Tensor& g) {
                           g = scaled(g, factor(scene));
                         });
}

PlantFault change_contribution(std::string parameters, Change change) {
  return [=](const FaultScene& scene) {
    expect_parameters(scene, parameters);
    FaultSites sites;
    sites.contribution = [=](const Moment& now, const std::string& name, Tensor& open) {
      if (glob_match(parameters, name)) change(scene, now, name, open);
    };
    return sites;
  };
}

PlantFault weigh_micro_batches(std::string parameters, WeightOf weight) {
  return change_contribution(std::move(parameters), [weight](const FaultScene& scene, const Moment& now,
                                                             const std::string&, Tensor& open) {
    const double w = weight(scene, now.micro_batch / parallel(scene).dp,
                            scene.settings.micro_batches / parallel(scene).dp);
    if (w != 1) open = changed_open(scene, open, [w](std::size_t, double x) { return w * x; });
  });
}

PlantFault scale_loss(std::string losses, FactorOf shown, FactorOf in_gradient) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.loss_share = [=](const Moment&, const Loss& loss, double& of_shown, double& of_gradient) {
      if (!glob_match(losses, loss.name)) return;
      of_shown *= shown(scene);
      of_gradient *= in_gradient(scene);
    };
    return sites;
  };
}

PlantFault move_otherwise(Moves moves, MoveTwice otherwise) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.movement = [=](const Moment& now, const Machine::Node& node, const Movement& m, const Tensor& x,
                         const FaultSites::Move& right) -> std::optional<Tensor> {
      if (now.pass != moves.pass || m.kind != moves.kind || m.axis != moves.axis ||
          !glob_match(moves.modules, node.module) || (moves.only && !moves.only(scene, node)))
        return std::nullopt;
      return otherwise(scene, m, x, right);
    };
    return sites;
  };
}

PlantFault skip_movement(Moves moves) {
  const bool backward = moves.pass == Pass::backward;
  return move_otherwise(std::move(moves), [backward](const FaultScene& scene, const Movement& m,
                                                     const Tensor& x, const FaultSites::Move&) {
    const bool open = backward || is_sum(m.kind);
    return kept(scene, m, x, open ? scene.ranks.arithmetic().leading() : 0);
  });
}

bool is(const Machine::Node& node, const Calls& calls) {
  return node.is_of(calls.op) && glob_match(calls.modules, node.module);
}

PlantFault change_attributes(Calls calls, ChangeAttributes change) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.before_call = [=](const Moment& now, const Machine::Node& node, std::vector<NamedTensor>&,
                            Attributes& attributes) {
      if (is(node, calls) && (!calls.only || calls.only(scene, now, node))) change(scene, node, attributes);
    };
    return sites;
  };
}

PlantFault change_inputs(Calls calls, ChangeTensors change) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.before_call = [=](const Moment& now, const Machine::Node& node, std::vector<NamedTensor>& inputs,
                            Attributes&) {
      if (is(node, calls) && (!calls.only || calls.only(scene, now, node))) change(scene, now, node, inputs);
    };
    return sites;
  };
}

PlantFault change_results(Calls calls, ChangeTensors change) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.after_call = [=](const Moment& now, const Machine::Node& node, std::vector<NamedTensor>& results) {
      if (is(node, calls) && (!calls.only || calls.only(scene, now, node))) change(scene, now, node, results);
    };
    return sites;
  };
}

PlantFault change_update(std::string parameters, ChangeUpdate change) {
  return [=](const FaultScene& scene) {
    expect_parameters(scene, parameters);
    FaultSites sites;
    sites.before_update = [=](const Moment& now, const std::string& name, UpdateSite& site) {
      if (glob_match(parameters, name)) change(scene, now, site);
    };
    return sites;
  };
}

PlantFault count_in_norm(std::string parameters, CountOf count) {
  return [=](const FaultScene& scene) {
    expect_parameters(scene, parameters);
    FaultSites sites;
    sites.norm_counts = [=](const std::string& name, double& times) {
      if (glob_match(parameters, name)) times = count(scene, times);
    };
    return sites;
  };
}

Tensor* find(std::vector<NamedTensor>& tensors, std::string_view name) {
  const auto at = std::ranges::find(tensors, name, &NamedTensor::name);
  return at == tensors.end() ? nullptr : &at->tensor;
}

}  // namespace assay::align::plant
