#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Optimizers take several steps in a row: grads[T, ..] holds one gradient per step, and the state after
/// every step is an output. A state that is not given is 0.
namespace assay {

/// Sets S, the shape of param. Throws Error if the attribute `steps` is not how many gradients there are.
void bind_steps(Dims&, std::string_view op, InputShapes, const Attributes&);

/// The values of an input; zeros like param if it is not given.
template <class T>
std::vector<T> state(Tensors<T>& t, std::string_view name) {
  return t.has(name) ? t.slot(name).values : std::vector<T>(t.slot("param").values.size(), T(0));
}

/// The attribute `grad_scale`: clipping and unscaling, which fused optimizers leave to the step (grad_scale
/// of torch.optim's fused ones, scale of apex, combined_scale of DeepSpeed).
inline constexpr Attribute grad_scale = {"grad_scale", "1", "times the gradients: clipping, no loss scale"};

/// The gradient that a step takes: of one sign or the other, scaled, which may be stored.
template <class T>
class TakenGradient {
 public:
  // Kernels divide by the norm to have it: max_norm / (norm + eps) has a rounding of its own.
  explicit TakenGradient(const Attributes& a)
      : scale_(constant<T>(a.real(grad_scale.name)) / T(1)),
        scales_(a.real(grad_scale.name) != 1),
        maximize_(a.flag("maximize")) {}
  T operator()(const T& recorded) const {
    const T g = maximize_ ? -recorded : recorded;
    return scales_ ? stored(scale_ * g) : g;
  }

 private:
  T scale_;
  bool scales_, maximize_;
};

/// 1 - x as kernels have it that hold x in their own format: wrong by the rounding of x.
template <class T>
T complement(double x) {
  if constexpr (std::is_same_v<T, Bound>)
    return {1 - x, ErrorScope::current().own ? 0 : ErrorScope::current().unit_roundoff * std::abs(x)};
  else
    return T(1 - x);
}

/// Makes the output NAME_STEP, of the shape of param.
template <class T>
void give_state(Tensors<T>& t, std::string_view name, std::int64_t step, std::vector<T> values) {
  auto& slot = t.slots()[std::string(name) + "_" + std::to_string(step)];
  slot.shape = t.shape("param");
  slot.values = std::move(values);
}

}  // namespace assay
