#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "assay/align/tape/fault_sites.h"

/// The few ways in which most faults of the catalogue go wrong. Patterns are globs over the names of
/// parameters, or of modules; one that matches nothing of a replay's model is an Error.
namespace assay::align::plant {

/// From the sizes of a replay.
using FactorOf = std::function<double(const FaultScene&)>;
double tp(const FaultScene&);
double cp(const FaultScene&);
double dp(const FaultScene&);
double ep(const FaultScene&);
double edp(const FaultScene&);
double micro_batches(const FaultScene&);  ///< of each rank
FactorOf one_over(FactorOf);
FactorOf times(FactorOf, FactorOf);
FactorOf constant(double);
inline const FactorOf one = constant(1);

/// A closed tensor of the same dtype, each element made of its place and value.
Tensor changed(const Tensor&, const std::function<double(std::size_t, double)>&);
/// The same of an open one.
Tensor changed_open(const FaultScene&, const Tensor& open, const std::function<double(std::size_t, double)>&);
/// Each element rounded to a narrower dtype.
Tensor rounded(const Tensor&, DType);
Tensor rounded_open(const FaultScene&, const Tensor& open, DType);

/// Gradients that are not summed over these axes: each rank keeps its share.
PlantFault skip_sum(std::string parameters, std::vector<Axis> axes);
/// The reduced gradient times a factor.
PlantFault scale_gradient(std::string parameters, FactorOf);
/// What a rank's m-th micro-batch of n gives counts so much.
using WeightOf = std::function<double(const FaultScene&, std::int64_t m, std::int64_t n)>;
PlantFault weigh_micro_batches(std::string parameters, WeightOf);
/// Gradients that are changed before they are added up, or when they are reduced.
using Change = std::function<void(const FaultScene&, const Moment&, const std::string& name, Tensor&)>;
PlantFault change_contribution(std::string parameters, Change);
PlantFault change_gradient(std::string parameters, Change);

/// A loss counts so much more in the gradient, and in what is shown.
/// @param losses  "cross_entropy", "*.balance", ..
PlantFault scale_loss(std::string losses, FactorOf shown, FactorOf in_gradient);

using Pass = Moment::Pass;
using Kind = Movement::Kind;
/// Which movements are meant.
struct Moves {
  std::string modules;
  Pass pass;
  Kind kind;
  Axis axis;
  std::function<bool(const FaultScene&, const Machine::Node&)> only = {};
};
/// They do not take place: of a sum each rank keeps its share.
PlantFault skip_movement(Moves);
using MoveTwice =
    std::function<Tensor(const FaultScene&, const Movement&, const Tensor&, const FaultSites::Move&)>;
PlantFault move_otherwise(Moves, MoveTwice);

/// Calls that are made with other attributes, forward and backward.
struct Calls {
  std::string modules;
  std::string_view op;
  std::function<bool(const FaultScene&, const Moment&, const Machine::Node&)> only = {};
};
using ChangeAttributes = std::function<void(const FaultScene&, const Machine::Node&, Attributes&)>;
PlantFault change_attributes(Calls, ChangeAttributes);
using ChangeTensors =
    std::function<void(const FaultScene&, const Moment&, const Machine::Node&, std::vector<NamedTensor>&)>;
PlantFault change_inputs(Calls, ChangeTensors);
PlantFault change_results(Calls, ChangeTensors);

/// The optimizer's step of these parameters.
using ChangeUpdate = std::function<void(const FaultScene&, const Moment&, UpdateSite&)>;
PlantFault change_update(std::string parameters, ChangeUpdate);
/// How often a rank counts them in the norm.
using CountOf = std::function<double(const FaultScene&, double right)>;
PlantFault count_in_norm(std::string parameters, CountOf);

/// One of the tensors, or nothing.
Tensor* find(std::vector<NamedTensor>&, std::string_view name);
bool is(const Machine::Node&, const Calls&);

}  // namespace assay::align::plant
