#pragma once

#include "assay/align/placement/machine.h"

namespace assay::align {

/// Takes down what is called and moved, and computes nothing: a model of any size.
class ShapeMachine : public Machine {
 public:
  using Machine::Machine;
  /// What another rank gives.
  Value given(const Shape& shape, const MeshPlacement& placement) { return add(shape, placement); }

 protected:
  Shape hold_indices(const std::string&, const Shape& shape) override { return shape; }
  Shape hold_derived(const std::vector<Value>&, const Shape& shape, const Formula&, bool) override {
    return shape;
  }
  std::vector<NamedValue> hold_call(const Node&) override;
  Shape hold_moved(const Node&) override;
};

}  // namespace assay::align
