#pragma once

#include "assay/operators/engine/operator.h"

/// The cosine of the angle between two vectors.
namespace assay {

// Squares must neither overflow nor underflow.
inline constexpr Domain cosine_domain = {.low = -0x1p61, .high = 0x1p61, .least = 0x1p-61};

/// n elements, `step` apart.
template <class T>
struct Stepped {
  const T* x;
  std::int64_t step;
  const T& operator()(std::int64_t i) const { return x[i * step]; }
};

/// The square root of the sum of their squares and `more`.
template <class T>
T length_of(std::int64_t n, const Stepped<T>& x, double more = 0) {
  const T squares = sum<T>(n, [&](auto i) { return x(i) * x(i); });
  return sqrt(more == 0 ? squares : squares + constant<T>(more));
}

/// The product of x and y by their lengths.
template <class T>
class Cosine {
 public:
  Cosine(std::int64_t n, Stepped<T> x, Stepped<T> y, const T& length_of_x, const T& length_of_y)
      : n_(n), x_(x), y_(y), length_of_x_(length_of_x), length_of_y_(length_of_y) {
    value_ = either<T>(
        [&] { return sum<T>(n_, [&](auto i) { return x_(i) * y_(i); }) / (length_of_x_ * length_of_y_); },
        [&] {
          return sum<T>(n_,
                        [&](auto i) { return stored(x_(i) / length_of_x_) * stored(y_(i) / length_of_y_); });
        });
  }
  const T& value() const { return value_; }
  /// y / (|x| |y|) - cos x / |x|^2
  T slope_of_first(std::int64_t i) const { return slope(x_, length_of_x_, y_, length_of_y_, i); }
  T slope_of_second(std::int64_t i) const { return slope(y_, length_of_y_, x_, length_of_x_, i); }

 private:
  T slope(const Stepped<T>& v, const T& length, const Stepped<T>& other, const T& other_length,
          std::int64_t i) const {
    const T direction = stored(v(i) / length), towards = stored(other(i) / other_length);
    return (towards - stored(value_ * direction)) / length;
  }

  std::int64_t n_;
  Stepped<T> x_, y_;
  T length_of_x_, length_of_y_, value_;
};

}  // namespace assay
