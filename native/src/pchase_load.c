// SPDX-License-Identifier: Apache-2.0
// Streams: one function a kind and width.
#include <errno.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "pchase_private.h"

enum { BLOCK = 4096 };

typedef void (*kernel)(char *const arrays[PCHASE_ARRAYS_MAX], uint64_t at, uint64_t bytes);

uint32_t
pchase_load_arrays(uint32_t kind)
{
    static const uint8_t arrays[OPD_LOAD_KINDS] = {
        [OPD_LOAD_READ] = 1,     [OPD_LOAD_WRITE] = 1,   [OPD_LOAD_COPY] = 2, [OPD_LOAD_TRIAD] = 3,
        [OPD_LOAD_NT_WRITE] = 1, [OPD_LOAD_NT_COPY] = 2, [OPD_LOAD_ZERO] = 1, [OPD_LOAD_QUAD] = 4,
        [OPD_LOAD_MOVSB] = 2,    [OPD_LOAD_STOSB] = 1};
    return arrays[kind];
}

// Kernels of one width, in functions made for the instructions it needs.
// `bytes` is a multiple of BLOCK; the arrays are aligned to a page.
#define EACH(v, body)                                                                              \
    for (uint64_t i = 0; i < bytes / sizeof(v); i += 4) {                                          \
        body(0) body(1) body(2) body(3)                                                            \
    }                                                                                              \
    __asm__ volatile("" ::: "memory")
#define READ(k) sum[k] += a[i + k];
#define WRITE(k) a[i + k] = value;
#define COPY(k) a[i + k] = b[i + k];
#define TRIAD(k) a[i + k] = b[i + k] + 3.0 * c[i + k];
#define QUAD(k) a[i + k] = b[i + k] + c[i + k] + d[i + k];

#define KERNEL(name, v, isa, before, body)                                                         \
    isa static __attribute__((noinline)) void name(char *const arrays[PCHASE_ARRAYS_MAX],          \
                                                   uint64_t at, uint64_t bytes)                    \
    {                                                                                              \
        v *a = (v *)(arrays[0] + at);                                                              \
        const v *b = (const v *)(arrays[1] + (arrays[1] ? at : 0));                                \
        const v *c = (const v *)(arrays[2] + (arrays[2] ? at : 0));                                \
        const v *d = (const v *)(arrays[3] + (arrays[3] ? at : 0));                                \
        (void)a, (void)b, (void)c, (void)d;                                                        \
        before;                                                                                    \
        body;                                                                                      \
    }

#define PLAIN_KERNELS(width, isa)                                                                  \
    typedef double vector_##width __attribute__((vector_size(width), may_alias));                  \
    KERNEL(read_##width, vector_##width, isa, vector_##width sum[4] = {{0}},                       \
           EACH(vector_##width, READ);                                                             \
           sum[0] += sum[1] + sum[2] + sum[3]; __asm__ volatile("" ::"m"(sum[0])))                 \
    KERNEL(write_##width, vector_##width, isa,                                                     \
           const vector_##width value = (vector_##width){0} + 1.0, EACH(vector_##width, WRITE))    \
    KERNEL(zero_##width, vector_##width, isa, vector_##width value = {0};                          \
           __asm__("" : "+m"(value)), EACH(vector_##width, WRITE))                                 \
    KERNEL(copy_##width, vector_##width, isa, , EACH(vector_##width, COPY))                        \
    KERNEL(triad_##width, vector_##width, isa, , EACH(vector_##width, TRIAD))                      \
    KERNEL(quad_##width, vector_##width, isa, , EACH(vector_##width, QUAD))
#define PLAIN_ROW(width)                                                                           \
    [OPD_LOAD_READ] = read_##width, [OPD_LOAD_WRITE] = write_##width,                              \
    [OPD_LOAD_COPY] = copy_##width, [OPD_LOAD_TRIAD] = triad_##width,                              \
    [OPD_LOAD_ZERO] = zero_##width, [OPD_LOAD_QUAD] = quad_##width

PLAIN_KERNELS(16, )
#if defined(__x86_64__)
PLAIN_KERNELS(32, __attribute__((target("avx2"))))
PLAIN_KERNELS(64, __attribute__((target("avx512f"))))

#define NT_WRITE(k) STREAM(a + i + k, value);
#define NT_COPY(k) STREAM(a + i + k, b[i + k]);
#define NT_KERNELS(width, isa)                                                                     \
    KERNEL(nt_write_##width, vector_##width, isa,                                                  \
           const vector_##width value = (vector_##width){0} + 1.0, EACH(vector_##width, NT_WRITE); \
           _mm_sfence())                                                                           \
    KERNEL(nt_copy_##width, vector_##width, isa, , EACH(vector_##width, NT_COPY); _mm_sfence())
#define NT_ROW(width) [OPD_LOAD_NT_WRITE] = nt_write_##width, [OPD_LOAD_NT_COPY] = nt_copy_##width

#define STREAM(to, value) _mm_stream_pd((double *)(to), (__m128d)(value))
NT_KERNELS(16, )
#undef STREAM
#define STREAM(to, value) _mm256_stream_pd((double *)(to), (__m256d)(value))
NT_KERNELS(32, __attribute__((target("avx2"))))
#undef STREAM
#define STREAM(to, value) _mm512_stream_pd((double *)(to), (__m512d)(value))
NT_KERNELS(64, __attribute__((target("avx512f"))))
#undef STREAM

static void
movsb(char *const arrays[PCHASE_ARRAYS_MAX], uint64_t at, uint64_t bytes)
{
    void *to = arrays[0] + at;
    const void *from = arrays[1] + at;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
}

static void
stosb(char *const arrays[PCHASE_ARRAYS_MAX], uint64_t at, uint64_t bytes)
{
    void *to = arrays[0] + at;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(1) : "memory");
}
#define BY_BYTES [OPD_LOAD_MOVSB] = movsb, [OPD_LOAD_STOSB] = stosb

static const kernel kernels[OPD_VECTOR_KINDS][OPD_LOAD_KINDS] = {
    [OPD_VECTOR_16] = {PLAIN_ROW(16), NT_ROW(16), BY_BYTES},
    [OPD_VECTOR_32] = {PLAIN_ROW(32), NT_ROW(32), BY_BYTES},
    [OPD_VECTOR_64] = {PLAIN_ROW(64), NT_ROW(64), BY_BYTES},
};

static uint32_t
width_of(uint32_t vector)
{
    if (vector == OPD_VECTOR_AUTO)
        return __builtin_cpu_supports("avx2") ? OPD_VECTOR_32 : OPD_VECTOR_16;
    if ((vector == OPD_VECTOR_32 && !__builtin_cpu_supports("avx2")) ||
        (vector == OPD_VECTOR_64 && !__builtin_cpu_supports("avx512f")))
        return OPD_VECTOR_KINDS;
    return vector;
}
#else
static const kernel kernels[OPD_VECTOR_KINDS][OPD_LOAD_KINDS] = {[OPD_VECTOR_16] = {PLAIN_ROW(16)}};

static uint32_t
width_of(uint32_t vector)
{
    return vector <= OPD_VECTOR_16 ? OPD_VECTOR_16 : OPD_VECTOR_KINDS;
}
#endif

int
opd_pchase_has_load(uint32_t load, uint32_t vector)
{
    if (load >= OPD_LOAD_KINDS || vector >= OPD_VECTOR_KINDS)
        return 0;
    uint32_t width = width_of(vector);
    return width < OPD_VECTOR_KINDS && kernels[width][load] != NULL;
}

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
pchase_load(const struct opd_pchase_options *options, char *const arrays[PCHASE_ARRAYS_MAX],
            const _Atomic uint32_t *stop, uint64_t end_ns)
{
    kernel stream = kernels[width_of(options->vector)][options->load];
    uint64_t done = 0, at = 0, bytes = options->load_bytes;
    // The clock is asked once in so much that its reading does not show.
    uint64_t chunk = options->load_delay ? BLOCK : 64 * BLOCK;
    while (!atomic_load_explicit(stop, memory_order_relaxed) && opd_raw_ns() < end_ns) {
        for (int i = 0; i < 16; i++) {
            uint64_t now = bytes - at < chunk ? bytes - at : chunk;
            stream(arrays, at, now);
            done += now;
            at = at + now == bytes ? 0 : at + now;
            pause_for(options->load_delay);
        }
    }
    return done * pchase_load_arrays(options->load);
}
