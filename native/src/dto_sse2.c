// SPDX-License-Identifier: Apache-2.0
#include "dto_kernels.h"
#if defined(__x86_64__)
#include <emmintrin.h>

#define KERNEL(name) dto_sse2_##name
#define TARGET
#define VEC __m128i
#define WIDTH ((size_t)16)
#define LOAD(p) _mm_loadu_si128((const void *)(p))
#define STORE(p, v) _mm_storeu_si128((void *)(p), v)
#define SPLAT(c) _mm_set1_epi8(c)
#define DIFFER(a, b) (0xffffu ^ (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)))
#include "dto_kernel.h"
#endif
