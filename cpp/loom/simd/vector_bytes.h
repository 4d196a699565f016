// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How wide the registers are that a file is compiled for: vectors of GCC's extension that are wider
// go through memory. Thread: any.

namespace loom::simd {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

}  // namespace loom::simd
