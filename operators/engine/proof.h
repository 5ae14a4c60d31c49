#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace assay {

/// How many elements are known to be correctly rounded to float32, and how. `exact`: no operation rounded
/// anything before the last. `certified`: all of the float64 result's error interval rounds to one float32.
/// `repaired`: so it does in double-double, in an exact sum, or at 50 digits and more. `unproved`: not even
/// at 50 digits; such a tie is rounded to even, but may be none in exact arithmetic.
struct Proof {
  std::int64_t exact = 0, certified = 0, repaired = 0, unproved = 0;
};

/// By the name of the output.
using Proofs = std::map<std::string, Proof, std::less<>>;

}  // namespace assay
