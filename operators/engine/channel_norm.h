#pragma once

#include "assay/golden/parallel.h"
#include "assay/operators/engine/norm.h"

/// Norms of which every channel of x, [N, C, D*], has one weight and one bias: over the batch and D
/// (batch_norm), or over D alone (instance_norm).
namespace assay {

/// The elements that share a mean and a deviation, and their channel.
class Normed {
 public:
  /// @param over_batch  set c is channel c of all samples; else set n C + c is channel c of sample n
  Normed(const Dims& d, bool over_batch, std::int64_t set)
      : channel_(set % d.at("C")),
        D_(d.at("D")),
        first_(set * D_),
        step_(d.at("C") * D_),
        size_(over_batch ? d.at("N") * D_ : D_) {}
  static std::int64_t count(const Dims& d, bool over_batch) {
    return over_batch ? d.at("C") : d.at("N") * d.at("C");
  }
  std::int64_t channel() const { return channel_; }
  std::int64_t size() const { return size_; }
  std::int64_t operator()(std::int64_t i) const { return first_ + i / D_ * step_ + i % D_; }

 private:
  std::int64_t channel_, D_, first_, step_, size_;
};

/// y = (x - mean) rstd w + b. PyTorch's kernels compute one scale and one shift per channel, and may cancel
/// more.
template <class T>
void normalise(Tensors<T>& t, const Normed& of, const T& mean, const T& rstd) {
  const T *x = t["x"].data(), *w = t.optional("weight").data(), *b = t.optional("bias").data();
  T* y = t["y"].data();
  const std::int64_t c = of.channel();
  for (std::int64_t i = 0; i < of.size(); ++i) {
    const T& element = x[of(i)];
    y[of(i)] = without_cancellation<T>(
        [&] {
          const T normal = stored((element - mean) * rstd), scaled = w != nullptr ? normal * w[c] : normal;
          return b != nullptr ? scaled + b[c] : scaled;
        },
        [&] {
          const T scale = w != nullptr ? rstd * w[c] : rstd, shift = -(mean * scale);
          return element * scale + (b != nullptr ? b[c] + shift : shift);
        });
  }
}

/// grad_weight = sum g (x - mean) rstd, grad_bias = sum g, over all samples.
/// @param set_of  the number of the mean and rstd of (n, c)
template <class T, class F>
void channel_gradients(Tensors<T>& t, const Dims& d, F set_of) {
  const auto x = t["x"], g = t["grad_y"];
  const T *mean = t["mean"].data(), *rstd = t["rstd"].data();
  const std::int64_t C = d.at("C"), D = d.at("D"), count = d.at("N") * D;
  if (const auto grad_w = t.optional("grad_weight")) {
    each_in_parallel(C, grain_of(4 * count), [&](std::int64_t c) {
      grad_w(c) = sum<T>(count, [&](auto i) {
        const std::int64_t set = set_of(i / D, c);
        return g(i / D, c, i % D) * stored((x(i / D, c, i % D) - stored(mean[set])) * stored(rstd[set]));
      });
    });
  }
  if (const auto grad_b = t.optional("grad_bias")) {
    each_in_parallel(C, grain_of(count), [&](std::int64_t c) {
      grad_b(c) = sum<T>(count, [&](auto i) { return g(i / D, c, i % D); });
    });
  }
}

/// grad_x of elements whose mean and deviation are their own.
template <class T>
void normalised_set_gradient(Tensors<T>& t, const Normed& of, const T& mean, const T& rstd) {
  const T *x = t["x"].data(), *g = t["grad_y"].data(), *w = t.optional("weight").data();
  T* grad_x = t["grad_x"].data();
  normalised_gradient<T>(
      of.size(), [&](auto i) { return w != nullptr ? stored(w[of.channel()] * g[of(i)]) : g[of(i)]; },
      [&](auto i) { return stored((x[of(i)] - stored(mean)) * stored(rstd)); }, stored(rstd),
      [&](auto i) -> T& { return grad_x[of(i)]; });
}

}  // namespace assay
