// SPDX-License-Identifier: Apache-2.0
#include "dto_kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL(name) dto_avx2_##name
#define TARGET __attribute__((target("avx2")))
#define VEC __m256i
#define WIDTH ((size_t)32)
#define LOAD(p) _mm256_loadu_si256((const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((void *)(p), v)
#define SPLAT(c) _mm256_set1_epi8(c)
#define DIFFER(a, b) (0xffffffffu ^ (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)))
#include "dto_kernel.h"
#endif
