// SPDX-License-Identifier: Apache-2.0
// Streams: one function a kind, made for AVX2 and for the base instructions.
#include <errno.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "pchase_private.h"

enum { BLOCK = 4096 };

uint32_t
pchase_load_arrays(uint32_t kind)
{
    static const uint8_t arrays[OPD_LOAD_KINDS] = {[OPD_LOAD_READ] = 1,     [OPD_LOAD_WRITE] = 1,
                                                   [OPD_LOAD_COPY] = 2,     [OPD_LOAD_TRIAD] = 3,
                                                   [OPD_LOAD_NT_WRITE] = 1, [OPD_LOAD_NT_COPY] = 2};
    return arrays[kind];
}

typedef double vector __attribute__((vector_size(32), may_alias));

#if defined(__x86_64__)
#define KERNEL __attribute__((target("avx2"), noinline))
#else
#define KERNEL __attribute__((noinline))
#endif

// `bytes` is a multiple of BLOCK; the arrays are aligned to a page.
#define EACH_VECTOR(body)                                                                          \
    for (uint64_t i = 0; i < bytes / sizeof(vector); i += 4) {                                     \
        body(0) body(1) body(2) body(3)                                                            \
    }

KERNEL static void
do_read(vector *a, const vector *b, const vector *c, uint64_t bytes)
{
    vector sum[4] = {{0}};
#define READ(k) sum[k] += a[i + k];
    EACH_VECTOR(READ)
    sum[0] += sum[1] + sum[2] + sum[3];
    __asm__ volatile("" ::"m"(sum[0]));
}

KERNEL static void
do_write(vector *a, const vector *b, const vector *c, uint64_t bytes)
{
    const vector value = {1, 1, 1, 1};
#define WRITE(k) a[i + k] = value;
    EACH_VECTOR(WRITE)
    __asm__ volatile("" ::: "memory");
}

KERNEL static void
do_copy(vector *a, const vector *b, const vector *c, uint64_t bytes)
{
#define COPY(k) a[i + k] = b[i + k];
    EACH_VECTOR(COPY)
    __asm__ volatile("" ::: "memory");
}

KERNEL static void
do_triad(vector *a, const vector *b, const vector *c, uint64_t bytes)
{
    const vector three = {3, 3, 3, 3};
#define TRIAD(k) a[i + k] = b[i + k] + three * c[i + k];
    EACH_VECTOR(TRIAD)
    __asm__ volatile("" ::: "memory");
}

#if defined(__x86_64__)
KERNEL static void
do_nt_write(vector *a, const vector *b, const vector *c, uint64_t bytes)
{
    const __m256d value = _mm256_set1_pd(1);
#define NT_WRITE(k) _mm256_stream_pd((double *)(a + i + k), value);
    EACH_VECTOR(NT_WRITE)
    _mm_sfence();
}

KERNEL static void
do_nt_copy(vector *a, const vector *b, const vector *c, uint64_t bytes)
{
#define NT_COPY(k)                                                                                 \
    _mm256_stream_pd((double *)(a + i + k), _mm256_load_pd((const double *)(b + i + k)));
    EACH_VECTOR(NT_COPY)
    _mm_sfence();
}
#endif

typedef void (*kernel)(vector *a, const vector *b, const vector *c, uint64_t bytes);

static void
pause_for(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
#if defined(__x86_64__)
        _mm_pause();
#else
        __asm__ volatile("" ::: "memory");
#endif
    }
}

uint64_t
pchase_load(uint32_t kind, char *const arrays[3], uint64_t bytes, uint32_t delay,
            const _Atomic uint32_t *stop, uint64_t end_ns)
{
    static const kernel kernels[OPD_LOAD_KINDS] = {
        [OPD_LOAD_READ] = do_read,         [OPD_LOAD_WRITE] = do_write,
        [OPD_LOAD_COPY] = do_copy,         [OPD_LOAD_TRIAD] = do_triad,
#if defined(__x86_64__)
        [OPD_LOAD_NT_WRITE] = do_nt_write, [OPD_LOAD_NT_COPY] = do_nt_copy,
#endif
    };
    uint64_t done = 0, at = 0;
    // The clock is asked once in so much that its reading does not show.
    uint64_t chunk = delay ? BLOCK : 64 * BLOCK;
    while (!atomic_load_explicit(stop, memory_order_relaxed) && opd_raw_ns() < end_ns) {
        for (int i = 0; i < 16; i++) {
            uint64_t now = bytes - at < chunk ? bytes - at : chunk;
            kernels[kind]((vector *)(arrays[0] + at),
                          (const vector *)(arrays[1] ? arrays[1] + at : NULL),
                          (const vector *)(arrays[2] ? arrays[2] + at : NULL), now);
            done += now;
            at = at + now == bytes ? 0 : at + now;
            pause_for(delay);
        }
    }
    return done * pchase_load_arrays(kind);
}
