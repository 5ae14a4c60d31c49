#pragma once
// For which instruction sets the kernels are compiled: to be included before <hwy/foreach_target.h>.

// Without this the lowest target would be a single lane, on x86-64 without SSSE3.
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
// NEON is what aarch64 always has; SVE's vectors have no fixed size and cannot be members.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
