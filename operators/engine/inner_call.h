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
      : op_(op), attributes_(complete_attributes(op, given)) {
    std::vector<InputShape> shapes;
    for (const Input& input : inputs) shapes.push_back({std::string(input.name), input.shape});
    dims_ = bind_dims(op_, shapes, attributes_);
    for (Input& input : inputs) add(input_arg(op_, input.name), std::move(input.values));
    const bool is_backward = has_role(Role::grad_output);
    for (const Arg& arg : op_.args) {
      const bool is_wanted = arg.role == Role::output || (arg.role == Role::grad_input && is_backward);
      if (is_wanted && (!arg.optional || tensors_.has(arg.name.substr(5)))) add(arg, {});
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

 private:
  bool has_role(Role role) const {
    return std::ranges::any_of(tensors_.slots(),
                               [&](const auto& named) { return named.second.arg->role == role; });
  }
  void add(const Arg& arg, std::vector<T> values) {
    const std::string_view letters = shape_letters(op_, arg, attributes_);
    auto& slot = tensors_.slots()[std::string(arg.name)];
    slot.arg = &arg;
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
