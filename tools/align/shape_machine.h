#pragma once

#include <map>

#include "assay/align/machine.h"

namespace assay::align {

/// An input of a call as it was taken down; `parameter` is empty where it is no parameter.
struct CallInput {
  std::string arg;
  Shape shape;
  std::string parameter;
};
struct Call {
  std::string module;
  const Operator* op = nullptr;
  std::vector<CallInput> inputs;
  Attributes attributes;
};

/// Takes down the calls, and computes nothing: a model of any size.
class ShapeMachine : public Machine {
 public:
  Value parameter(const std::string& name, const Shape&) override;
  Value indices(const std::string& name, const Shape&) override;
  Value view(const Value&, const Shape&) override;
  std::vector<NamedValue> call_all(const std::string& module, std::string_view op,
                                   const std::vector<NamedValue>& inputs, const Attributes&) override;

  std::vector<Call> calls;

 private:
  Value add(const Shape&, const std::string& parameter);

  std::vector<std::string> parameter_of_;  ///< by id
  std::map<std::string, Value, std::less<>> known_;
};

}  // namespace assay::align
