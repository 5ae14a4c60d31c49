#pragma once

#include <numbers>

/// One standard for all that is concluded from numbers which may look so by accident: a statistical limit, a
/// fit, a match, a cause.
namespace assay {

/// Errors that are independent with mean 0, the k-th within b_k, add up to more than
/// `improbable` sqrt(sum b_k^2) in one sum of 1 / (2 exp(-improbable^2 / 2)) = 4e13: Hoeffding 1963, theorem
/// 2, doi:10.1080/01621459.1963.10500830, as in Higham and Mary 2019, thm 2.4. Of normal errors it is one of
/// 8e14: erfc(improbable / sqrt 2) = 1.24e-15 = 2^-49.5.
inline constexpr double improbable = 8;

/// The same as bits: 2 exp(-improbable^2 / 2) = 2^-45.17.
inline constexpr double proof_bits = improbable * improbable / (2 * std::numbers::ln2) - 1;

/// Whether evidence proves a hypothesis.
/// @param evidence    bits: -log2 of the probability that all it explains is an accident
/// @param parameters  bits that choose it among all hypotheses of its kind
constexpr bool proves(double evidence, double parameters) {
  return evidence >= proof_bits + parameters;
}

/// Whether one of so many reasons that were tried fits better than the best of them does by accident. Enough
/// to say where a mistake comes from that is proved by itself, with these bits beside it.
constexpr bool beats_chance(double evidence, double tried) {
  return evidence > tried;
}

/// What a number costs that was fitted and is told with six digits: log2(10^6).
inline constexpr double bits_of_a_number = 20;

/// A scalar, or a tensor of one value, holds 24 bits at most in float32: it proves nothing. That its ratio is
/// a size of the run is said from so many bits on, and with them (CauseParameters::evidence).
inline constexpr double hint_bits = 9;

}  // namespace assay
