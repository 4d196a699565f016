// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// LOOM_ISA_CLONES before a function's definition compiles it for AVX-512, AVX2 and the baseline;
// the loader picks the best for the processor. What it inlines is compiled along with it.

#if defined(__x86_64__) && defined(__linux__)
#define LOOM_ISA_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define LOOM_ISA_CLONES
#endif
