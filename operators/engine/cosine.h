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

/// The product of x and y by their lengths, which are at least eps.
template <class T>
class Cosine {
 public:
  Cosine(std::int64_t n, Stepped<T> x, Stepped<T> y, const T& eps)
      : n_(n),
        x_(x),
        y_(y),
        length_of_x_(maximum<T>(length(x), eps)),
        length_of_y_(maximum<T>(length(y), eps)) {
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
  T length(const Stepped<T>& v) const {
    return sqrt(sum<T>(n_, [&](auto i) { return v(i) * v(i); }));
  }
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
