#pragma once

#include <memory>

#include "assay/golden/bound.h"

namespace assay {

/// The sums of the first one, two, three.. terms, each as accumulate() has it, in a time that grows with
/// their number. Not so where a matrix unit, or an accumulator that is promoted, takes the terms in steps.
class RunningSum {
 public:
  explicit RunningSum(const ErrorModel&);
  ~RunningSum();
  RunningSum(const RunningSum&) = delete;
  RunningSum& operator=(const RunningSum&) = delete;
  void add(const Bound& term);
  Bound value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay
