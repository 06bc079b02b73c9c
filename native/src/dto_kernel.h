// SPDX-License-Identifier: Apache-2.0
// One kernel's four functions for a width of vector. Include it with
//   KERNEL(name)  the function's name        TARGET  its target attribute
//   VEC           a vector of WIDTH bytes    LOAD STORE SPLAT
//   DIFFER(a, b)  a bit of 64 for each byte that differs
// defined. Nothing is read or written beyond the n bytes; ends are done by
// vectors that overlap, so that no length has a loop over bytes (which a
// compiler would turn into a call of the very function it is in).
#include "dto_small.h"

#define FOUR_LOAD(p, a, b, c, e)                                                                   \
    VEC a = LOAD(p), b = LOAD((p) + WIDTH), c = LOAD((p) + 2 * WIDTH), e = LOAD((p) + 3 * WIDTH)
#define FOUR_STORE(p, a, b, c, e)                                                                  \
    (STORE(p, a), STORE((p) + WIDTH, b), STORE((p) + 2 * WIDTH, c), STORE((p) + 3 * WIDTH, e))

// Up to four vectors: all loaded before any is stored. 0 when it is longer.
TARGET static inline int
KERNEL(few)(char *d, const char *s, size_t n)
{
    if (n < DTO_SMALL) {
        dto_small_move(d, s, n);
    } else if (n <= 2 * WIDTH) {
        VEC a = LOAD(s), b = LOAD(s + n - WIDTH);
        STORE(d, a);
        STORE(d + n - WIDTH, b);
    } else if (n <= 4 * WIDTH) {
        VEC a = LOAD(s), b = LOAD(s + WIDTH);
        VEC c = LOAD(s + n - 2 * WIDTH), e = LOAD(s + n - WIDTH);
        STORE(d, a);
        STORE(d + WIDTH, b);
        STORE(d + n - 2 * WIDTH, c);
        STORE(d + n - WIDTH, e);
    } else {
        return 0;
    }
    return 1;
}

// What is stored never reaches what is still to be read: d is below s, or both
// are apart. The end is read first.
TARGET static inline void
KERNEL(upward)(char *d, const char *s, size_t n)
{
    char *end = d + n - 4 * WIDTH;
    FOUR_LOAD(s + n - 4 * WIDTH, e0, e1, e2, e3);
    for (; d < end; d += 4 * WIDTH, s += 4 * WIDTH) {
        FOUR_LOAD(s, a, b, c, e);
        FOUR_STORE(d, a, b, c, e);
    }
    FOUR_STORE(end, e0, e1, e2, e3);
}

TARGET static void *
KERNEL(copy)(void *to, const void *from, size_t n)
{
    if (!KERNEL(few)(to, from, n))
        KERNEL(upward)(to, from, n);
    return to;
}

TARGET static void *
KERNEL(move)(void *to, const void *from, size_t n)
{
    char *d = to;
    const char *s = from;
    if (KERNEL(few)(d, s, n))
        return to;
    if ((uintptr_t)d - (uintptr_t)s >= n) {
        KERNEL(upward)(d, s, n);
        return to;
    }
    FOUR_LOAD(s, h0, h1, h2, h3);
    for (size_t left = n; left > 4 * WIDTH; left -= 4 * WIDTH) {
        FOUR_LOAD(s + left - 4 * WIDTH, a, b, c, e);
        FOUR_STORE(d + left - 4 * WIDTH, a, b, c, e);
    }
    FOUR_STORE(d, h0, h1, h2, h3);
    return to;
}

TARGET static void *
KERNEL(set)(void *to, int byte, size_t n)
{
    char *d = to;
    if (n < DTO_SMALL || n < WIDTH) {
        dto_small_set(d, byte, n);
        return to;
    }
    VEC v = SPLAT((char)byte);
    char *end = d + n - WIDTH;
    for (; (size_t)(end - d) >= 4 * WIDTH; d += 4 * WIDTH)
        FOUR_STORE(d, v, v, v, v);
    for (; d < end; d += WIDTH)
        STORE(d, v);
    STORE(end, v);
    return to;
}

TARGET static int
KERNEL(compare)(const void *left, const void *right, size_t n)
{
    const unsigned char *a = left, *b = right;
    if (n < WIDTH)
        return dto_small_compare(a, b, n);
    for (size_t at = 0;;) {
        uint64_t differ = DIFFER(LOAD(a + at), LOAD(b + at));
        if (differ) {
            at += (size_t)__builtin_ctzll(differ);
            return a[at] - b[at];
        }
        if (at == n - WIDTH)
            return 0;
        at = at + 2 * WIDTH <= n ? at + WIDTH : n - WIDTH;
    }
}

const struct opd_dto_functions KERNEL(functions) = {
    .copy = KERNEL(copy),
    .move = KERNEL(move),
    .set = KERNEL(set),
    .compare = KERNEL(compare),
};
