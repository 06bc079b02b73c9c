// SPDX-License-Identifier: Apache-2.0
// Fewer bytes than the kernels' vectors, in pieces that overlap. x86-64 only.
#ifndef OPD_DTO_SMALL_H
#define OPD_DTO_SMALL_H
#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DTO_SMALL = 64 };

#define DTO_INLINE static inline __attribute__((always_inline, unused))

DTO_INLINE __m128i
dto_load(const void *p)
{
    return _mm_loadu_si128(p);
}

DTO_INLINE void
dto_store(void *p, __m128i v)
{
    _mm_storeu_si128(p, v);
}

// memcpy of a constant size is one instruction, no call.
#define DTO_PIECES(type)                                                                           \
    do {                                                                                           \
        type first_, last_;                                                                        \
        __builtin_memcpy(&first_, s, sizeof(type));                                                \
        __builtin_memcpy(&last_, s + n - sizeof(type), sizeof(type));                              \
        __builtin_memcpy(d, &first_, sizeof(type));                                                \
        __builtin_memcpy(d + n - sizeof(type), &last_, sizeof(type));                              \
    } while (0)

// n < DTO_SMALL; they may overlap.
DTO_INLINE void
dto_small_move(char *d, const char *s, size_t n)
{
    if (n >= 32) {
        __m128i a = dto_load(s), b = dto_load(s + 16);
        __m128i c = dto_load(s + n - 32), e = dto_load(s + n - 16);
        dto_store(d, a);
        dto_store(d + 16, b);
        dto_store(d + n - 32, c);
        dto_store(d + n - 16, e);
    } else if (n >= 16) {
        __m128i a = dto_load(s), b = dto_load(s + n - 16);
        dto_store(d, a);
        dto_store(d + n - 16, b);
    } else if (n >= 8) {
        DTO_PIECES(uint64_t);
    } else if (n >= 4) {
        DTO_PIECES(uint32_t);
    } else if (n >= 2) {
        DTO_PIECES(uint16_t);
    } else if (n) {
        *d = *s;
    }
}

DTO_INLINE void
dto_small_set(char *d, int byte, size_t n)
{
    uint64_t all = (unsigned char)byte * 0x0101010101010101u;
    if (n >= 16) {
        __m128i v = _mm_set1_epi8((char)byte);
        dto_store(d, v);
        dto_store(d + n - 16, v);
        if (n > 32) {
            dto_store(d + 16, v);
            dto_store(d + n - 32, v);
        }
    } else if (n >= 8) {
        __builtin_memcpy(d, &all, 8);
        __builtin_memcpy(d + n - 8, &all, 8);
    } else if (n >= 4) {
        __builtin_memcpy(d, &all, 4);
        __builtin_memcpy(d + n - 4, &all, 4);
    } else if (n >= 2) {
        __builtin_memcpy(d, &all, 2);
        __builtin_memcpy(d + n - 2, &all, 2);
    } else if (n) {
        *d = (char)byte;
    }
}

// The first byte counts most: that is the order of big-endian numbers.
#define DTO_COMPARE(type, swap, at)                                                                \
    do {                                                                                           \
        type x_, y_;                                                                               \
        __builtin_memcpy(&x_, a + (at), sizeof(type));                                             \
        __builtin_memcpy(&y_, b + (at), sizeof(type));                                             \
        if (x_ != y_)                                                                              \
            return swap(x_) < swap(y_) ? -1 : 1;                                                   \
    } while (0)

DTO_INLINE int
dto_small_compare(const unsigned char *a, const unsigned char *b, size_t n)
{
    if (n >= 16) {
        for (size_t at = 0;;) {
            __m128i same = _mm_cmpeq_epi8(dto_load(a + at), dto_load(b + at));
            unsigned differ = 0xffffu ^ (unsigned)_mm_movemask_epi8(same);
            if (differ) {
                at += (size_t)__builtin_ctz(differ);
                return a[at] - b[at];
            }
            if (at == n - 16)
                return 0;
            at = at + 32 <= n ? at + 16 : n - 16;
        }
    }
    if (n >= 8) {
        DTO_COMPARE(uint64_t, __builtin_bswap64, 0);
        DTO_COMPARE(uint64_t, __builtin_bswap64, n - 8);
    } else if (n >= 4) {
        DTO_COMPARE(uint32_t, __builtin_bswap32, 0);
        DTO_COMPARE(uint32_t, __builtin_bswap32, n - 4);
    } else if (n >= 2) {
        DTO_COMPARE(uint16_t, __builtin_bswap16, 0);
        DTO_COMPARE(uint16_t, __builtin_bswap16, n - 2);
    } else if (n) {
        return a[0] - b[0];
    }
    return 0;
}
#endif
