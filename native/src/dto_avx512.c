// SPDX-License-Identifier: Apache-2.0
// AVX-512 F and BW: compares of bytes give a mask.
#include "dto_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL(name) dto_avx512_##name
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define VEC __m512i
#define WIDTH ((size_t)64)
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define SPLAT(c) _mm512_set1_epi8(c)
#define DIFFER(a, b) (uint64_t)_mm512_cmpneq_epi8_mask(a, b)
#include "dto_kernel.h"
#endif
