#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/list.h"

namespace assay {

/// A call of an operator within another, in the arithmetic of the one around it.
template <class T>
class InnerCall {
 public:
  struct Input {
    std::string_view name;
    Shape shape;
    std::vector<T> values;
  };
  InnerCall(const Operator& op, const Attributes& given, std::vector<Input> inputs)
      : InnerCall(op, complete_attributes(op, given)) {
    std::vector<InputShape> shapes;
    for (const Input& input : inputs) shapes.push_back({std::string(input.name), input.shape});
    dims_ = bind_dims(op_, shapes, attributes_);
    for (Input& input : inputs) add(input.name, std::move(input.values));
    const bool is_backward = std::ranges::any_of(
        op_.args, [&](const Arg& arg) { return arg.role == Role::grad_output && tensors_.has(arg.name); });
    for (const Arg& arg : op_.args) {
      const bool is_wanted = arg.role == Role::output || (arg.role == Role::grad_input && is_backward);
      if (is_wanted && (!arg.optional || tensors_.has(arg.name.substr(5)))) add(arg.name, {});
    }
  }
  void run() {
    if constexpr (std::is_same_v<T, float>)
      op_.run_float(tensors_, dims_, attributes_);
    else if constexpr (std::is_same_v<T, double>)
      op_.run_double(tensors_, dims_, attributes_);
    else if constexpr (std::is_same_v<T, Bound>)
      op_.run_bound(tensors_, dims_, attributes_);
    else
      op_.run_truth(tensors_, dims_, attributes_);
  }
  const std::vector<T>& made(std::string_view output) { return tensors_.slot(output).values; }
  /// As it is kept before it goes on.
  std::vector<T> kept(std::string_view output) {
    std::vector<T> values = made(output);
    for (T& v : values) v = stored(v);
    return values;
  }

 protected:
  // Bound and filled by what is derived from it.
  InnerCall(const Operator& op, Attributes complete) : op_(op), attributes_(std::move(complete)) {}

  void add(std::string_view arg, std::vector<T> values) {
    const Arg& declared = *std::ranges::find(op_.args, arg, &Arg::name);
    const std::string_view letters = shape_letters(op_, declared, attributes_);
    auto& slot = tensors_.slots()[std::string(arg)];
    slot.arg = &declared;
    slot.shape = expand(letters, dims_);
    slot.extents = extents_of(letters, dims_);
    slot.values = std::move(values);
    slot.values.resize(static_cast<std::size_t>(element_count(slot.shape)), T(0));
  }

  const Operator& op_;
  Attributes attributes_;
  Dims dims_;
  Tensors<T> tensors_;
};

}  // namespace assay
