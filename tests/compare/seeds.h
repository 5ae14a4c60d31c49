#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace assay {

/// Of the values that a fault is planted in: one of them, or as many as ASSAY_SEEDS says.
inline std::vector<std::uint64_t> seeds() {
  const char* asked = std::getenv("ASSAY_SEEDS");
  const std::int64_t count = asked == nullptr ? 1 : std::atoll(asked);
  std::vector<std::uint64_t> all;
  for (std::int64_t seed = 1; seed <= count; ++seed) all.push_back(static_cast<std::uint64_t>(seed));
  return all;
}

}  // namespace assay
