#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/arithmetic.h"
#include "assay/golden/dtype.h"
#include "assay/operators/engine/recorded.h"

/// Attention with linear biases: a bias that falls with the distance of the key, faster in some heads than in
/// others (arXiv:2108.12409 sec. 3).
namespace assay {

inline constexpr Attribute alibi_attribute = {
    "alibi", "null",
    "bias of key s and query l in a head of slope m: first_key: m s; last_key: m (s - S + 1); "
    "distance: -m |l - s|; scaled: scale m s of bfloat16 numbers; scaled_twice: 2 scale m s of them"};
inline constexpr Attribute alibi_bias_max_attribute = {
    "alibi_bias_max", "8", "the exponent of the last slope: 2^(-8 / n) to 2^-8 in n heads"};
inline constexpr Attribute alibi_slopes_attribute = {
    "alibi_slopes", "\"closest_power\"",
    "of H heads that are no power of two. closest_power: those of the next lower n, then every other of 2n; "
    "all_heads: as if H were one; from_one: closest_power with a first slope of 1"};

inline constexpr Solved alibi_solved = {
    .attribute = "alibi",
    .by = Solved::By::candidates,
    .how =
        "where nothing turns: first_key (BLOOM), last_key with a bias_max of 8 or 16 (MPT), distance "
        "(flash-attention), scaled (Falcon), scaled_twice (transformers 5.14.1 has Falcon's in its mask, "
        "too, which eager attention adds as well)"};
inline constexpr Seen alibi_left_out = {"alibi", "null", "biases that are left out"};
inline constexpr Seen alibi_unscaled = {"alibi", "\"first_key\"", "biases of another form"};
inline constexpr Seen alibi_scaled = {"alibi", "\"scaled\"", "biases that are scaled with the products"};
inline constexpr Seen alibi_twice = {"alibi", "\"scaled_twice\"", "biases that are added twice"};
inline constexpr Seen alibi_of_all_heads = {"alibi_slopes", "\"all_heads\"",
                                            "slopes without the rule of the closest power of two"};
inline constexpr Seen alibi_from_one = {"alibi_slopes", "\"from_one\"", "slopes that are one head off"};
inline constexpr Seen alibi_max_8 = {"alibi_bias_max", "8", "slopes of another largest bias"};

/// All candidates, then each with every form of the biases that programs have.
std::vector<Candidate> or_with_alibi(std::vector<Candidate>);

enum class AlibiForm : std::uint8_t { none, first_key, last_key, distance, scaled, scaled_twice };
/// @throws Error  for no form
AlibiForm alibi_form(std::string_view op, const Attributes&);

/// Throws Error for what the attributes may not be.
void check_alibi(std::string_view op, const Attributes&);

/// Frameworks have them as powers of a rounded number.
struct AlibiSlope {
  double base;
  std::int64_t power;
};
std::vector<AlibiSlope> alibi_slopes(std::int64_t heads, const Attributes&);

/// The biases of one call of H heads and S keys.
template <class T>
class Alibi {
 public:
  Alibi() = default;
  Alibi(std::int64_t H, std::int64_t S, const T& scale, const Attributes& a)
      : S_(S), scale_(scale), form_(alibi_form("attention", a)) {
    if (form_ == AlibiForm::none) return;
    for (const AlibiSlope& slope : alibi_slopes(H, a)) {
      T m(1);
      for (std::int64_t i = 0; i < slope.power; ++i) m = m * constant<T>(slope.base);
      slopes_.push_back(is_scaled() ? T(round_to(DType::bfloat16, nearest(m))) : m);
    }
  }
  explicit operator bool() const { return !slopes_.empty(); }
  bool is_scaled() const { return form_ == AlibiForm::scaled || form_ == AlibiForm::scaled_twice; }
  /// @param ahead  the place of the key less that of the query
  T operator()(std::int64_t h, std::int64_t s, std::int64_t ahead) const {
    const T& m = slopes_[static_cast<std::size_t>(h)];
    if (!is_scaled()) {
      const std::int64_t place = form_ == AlibiForm::first_key  ? s
                                 : form_ == AlibiForm::last_key ? s - S_ + 1
                                 : ahead < 0                    ? ahead
                                                                : -ahead;
      return stored(m * number<T>(place));
    }
    const double place = round_to(DType::bfloat16, static_cast<double>(s));
    const T bias = scale_ * T(round_to(DType::bfloat16, nearest(m) * place));
    return form_ == AlibiForm::scaled_twice ? T(2) * stored(bias) : bias;
  }

 private:
  static double nearest(const T& x) {
    if constexpr (std::is_same_v<T, Bound>)
      return x.value;
    else
      return static_cast<double>(x);
  }

  std::vector<T> slopes_;
  std::int64_t S_ = 0;
  T scale_ = T(0);
  AlibiForm form_ = AlibiForm::none;
};

}  // namespace assay
