#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Reductions over the axes that an attribute names: S* is the shape of x, R* what is left of it, and
/// "reduced" counts the elements behind one of y.
namespace assay {

/// Sets S, R and reduced.
/// @param attribute  "dims" or "dim": one axis or several; null or [] mean all. The attribute "keepdim"
///                   keeps them with extent 1.
/// @throws Error     for an axis that is not there or named twice
void bind_reduction(Dims&, const Shape& x, const Attributes&, std::string_view attribute);

/// The same where `dim` names one axis: throws Error for a list.
void bind_reduction_over_one(Dims&, const Shape& x, const Attributes&);

/// The dimension of y that each of x is, or not_in_result where it is reduced.
Shape dims_left(const Shape& x, const Attributes&, std::string_view attribute);

/// Where the elements lie: element i of x behind element r of y.
class Groups {
 public:
  Groups(const Shape& x, const Attributes&, std::string_view attribute);
  std::int64_t count() const { return static_cast<std::int64_t>(first_.size()); }
  std::int64_t size() const { return static_cast<std::int64_t>(offsets_.size()); }
  std::int64_t operator()(std::int64_t r, std::int64_t i) const {
    return first_[static_cast<std::size_t>(r)] + offsets_[static_cast<std::size_t>(i)];
  }

 private:
  std::vector<std::int64_t> first_, offsets_;
};

/// y = sum f(x) over the axes of `attribute`.
template <class T, class F>
void reduce_forward(Tensors<T>& t, const Dims& d, const Attributes& a, F f,
                    std::string_view attribute = "dims") {
  const auto x = t["x"], y = t["y"];
  const Groups groups(d.extents("S"), a, attribute);
  for (std::int64_t r = 0; r < groups.count(); ++r) {
    y(r) = sum<T>(groups.size(), [&](auto i) { return f(x(groups(r, i))); });
  }
}

/// grad_x = f(x, y, grad_y), element by element.
template <class T, class F>
void reduce_backward(Tensors<T>& t, const Dims& d, const Attributes& a, F f,
                     std::string_view attribute = "dims") {
  const auto x = t["x"], y = t["y"], g = t["grad_y"], grad_x = t["grad_x"];
  const Groups groups(d.extents("S"), a, attribute);
  for (std::int64_t r = 0; r < groups.count(); ++r) {
    for (std::int64_t i = 0; i < groups.size(); ++i) {
      grad_x(groups(r, i)) = f(x(groups(r, i)), y(r), g(r));
    }
  }
}

}  // namespace assay
