#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/relation.h"

namespace assay {

/// A place where a value goes on: the input of a module, or a value that is made of it.
struct Use {
  Name target;
  bool is_input = false;   ///< the target is an input, as it is; else a value with a relation
  std::size_t source = 0;  ///< which source of that relation the value is
};

/// An input that a call was given and that was not recorded with it.
struct Borrowed {
  Name input;   ///< as it would have been recorded
  Name source;  ///< the value that it is
};

/// A call that no module makes by itself.
struct HiddenCall {
  const Operator* op = nullptr;
  std::string module;  ///< as if it were one, beside those that it takes values of
  std::vector<Borrowed> inputs;
  std::string output;                                     ///< the operator's name for its result
  Name result;                                            ///< the record that holds it
  std::vector<std::pair<std::string, Name>> others = {};  ///< its other results: the choice of a router
  /// With the slot "value" where it was recorded as an input only.
  Name value() const {
    Name name = result;
    if (name.slot == "input") name.slot = "value";
    return name;
  }
};

/// A value is a result, an input of a module that has recorded modules inside, or, with the slot "value",
/// what nobody recorded but as the input of a module.
struct Relations {
  std::map<Name, Relation> made;          ///< of inputs, of results without an operator, of values
  std::map<Name, std::vector<Use>> uses;  ///< of values
  std::vector<Borrowed> borrowed;
  std::vector<HiddenCall> hidden;
  std::vector<Borrowed> shared;  ///< inputs that are the parameter of another module
};

/// Whether a call with these inputs makes the result. The result is of the same side, and the call lacks
/// nothing.
using Makes = std::function<bool(const RecordedCall&, const LogicalTensor& result)>;

/// Finds out how the values of a run follow from each other: in one step and micro-batch for each name, the
/// first that has it. What is found there is a guess until all others agree.
Relations find_relations(const SideValues&, const RecordedCalls&, const Makes&);

}  // namespace assay
