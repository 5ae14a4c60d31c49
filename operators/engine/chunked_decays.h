#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

#include "assay/golden/arithmetic.h"

/// What chunked kernels of linear attention may be off by where a recurrence is not. They have the logarithms
/// of decays as sums from the beginning of a chunk, and take differences of those.
namespace assay {

/// Tokens of a chunk (flash-linear-attention, Hugging Face transformers).
inline constexpr std::int64_t tokens_of_chunk = 64;
/// Additions that a running sum of a chunk goes through: log2 of its tokens in a tree (Blelloch 1990). From
/// left to right two sums that follow each other differ by one rounding, of which there are twice as many
/// here.
inline constexpr double additions_of_chunk = std::bit_width(static_cast<std::uint64_t>(tokens_of_chunk)) - 1;

/// Decays [.., T, width] with that error: a sum of logarithms that is off by e from one token to the next is
/// that of a decay which is, and differences of two sums are rounded once more.
template <class T>
std::vector<T> decays_of_chunks(const std::vector<T>& decays, [[maybe_unused]] std::int64_t tokens,
                                [[maybe_unused]] std::int64_t width) {
  std::vector<T> all = decays;
  if constexpr (std::is_same_v<T, Bound>) {
    if (ErrorScope::current().own || tokens == 0 || width == 0) return all;
    const double u = ErrorScope::current().unit_roundoff;
    const auto size = [&](std::int64_t i) { return std::abs(decays[static_cast<std::size_t>(i)].value); };
    for (std::int64_t i = 0; i < std::ssize(decays); ++i) {
      const std::int64_t t = i / width % tokens;
      double sum = 0;
      for (std::int64_t back = 0; back <= std::min(t, tokens_of_chunk - 1); ++back)
        sum += size(i - back * width);
      const double additions = std::min(additions_of_chunk, static_cast<double>(t));
      all[static_cast<std::size_t>(i)].error += (2 * additions + 1) * u * sum;
    }
  }
  return all;
}

/// The error of a decay's gradient, which such kernels have as a sum over the tokens from it to the end of
/// its chunk, of what each hands back to the logarithm of its factor: terms that cancel.
class GradientsOfChunks {
 public:
  /// Magnitudes.
  struct OfToken {
    double handed_back = 0;
    double carried = 0;  ///< over the end of a chunk, if that is behind it
  };
  /// @param terms  of what a token hands back, which is a sum of products itself
  explicit GradientsOfChunks(std::int64_t terms) : terms_(terms) {}
  /// The last token first.
  double add(const OfToken& of_token) {
    of_tokens_.push_front(of_token);
    if (std::ssize(of_tokens_) > tokens_of_chunk) of_tokens_.pop_back();
    double sum = 0, most = 0;
    for (const auto& [handed, over] : of_tokens_) {
      sum += handed;
      most = std::max(most, over);
    }
    const auto additions = static_cast<double>(terms_ + std::ssize(of_tokens_) - 1);
    return additions * ErrorScope::current().unit_roundoff * (sum + most);
  }

 private:
  std::int64_t terms_;
  std::deque<OfToken> of_tokens_;
};

}  // namespace assay
