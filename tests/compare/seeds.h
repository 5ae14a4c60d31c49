#pragma once

#include <cstdint>

namespace assay {

/// Of the values that a fault is planted in: with sanitizers one of them makes the accesses of all.
#ifdef __SANITIZE_ADDRESS__
inline constexpr std::uint64_t seeds[] = {1};
#else
inline constexpr std::uint64_t seeds[] = {1, 2, 3};
#endif

}  // namespace assay
