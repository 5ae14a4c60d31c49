#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assay/align/faults/fault.h"

/// The areas of the catalogue, each with its faults in a file of its own.
namespace assay::align {

/// Expected causes: a factor that is a size of the strategy, or a known number; the sum over an axis that is
/// missing; how often each micro-batch counts; an attribute in the place of the right one.
inline Diagnosis factor_named(std::string size) {
  return {Cause::factor, {.factor_names = {std::move(size)}}};
}
inline Diagnosis factor_of(double k) {
  return {Cause::factor, {.factor = k}};
}
inline Diagnosis partial_over(std::string axis) {
  return {Cause::partial_sum, {.axis = std::move(axis)}};
}
inline Diagnosis counted(std::vector<double> times) {
  return {Cause::weights, {.counts = std::move(times)}};
}
/// The mistake was made in what the operator was given.
inline Diagnosis operand_of(std::string op, std::string operand, Diagnosis mistake) {
  mistake.parameters.op = std::move(op);
  mistake.parameters.operand = std::move(operand);
  return mistake;
}
inline Diagnosis other_attribute(std::string op, std::string attribute, std::optional<double> used = {},
                                 std::optional<double> right = {}) {
  return {Cause::attribute,
          {.op = std::move(op), .attribute = std::move(attribute), .value = used, .reference_value = right}};
}

std::vector<Fault> reduction_faults();
std::vector<Fault> loss_scale_faults();
std::vector<Fault> expert_faults();
std::vector<Fault> position_faults();
std::vector<Fault> stage_faults();
std::vector<Fault> recompute_faults();
std::vector<Fault> zero_faults();
std::vector<Fault> norm_faults();
std::vector<Fault> optimizer_faults();
std::vector<Fault> precision_faults();
std::vector<Fault> constant_faults();

}  // namespace assay::align
