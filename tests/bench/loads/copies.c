// SPDX-License-Identifier: Apache-2.0
// Description: a small library of the four functions, to be linked twice.
// usage: gcc -O2 -ffreestanding -fno-tree-loop-distribute-patterns -c copies.c
#include <stddef.h>
#include <stdint.h>

typedef uint64_t pair __attribute__((vector_size(16), aligned(1), may_alias));

void *
memcpy(void *to, const void *from, size_t n)
{
    char *d = to;
    const char *s = from;
    for (; n >= 16; n -= 16, d += 16, s += 16)
        *(pair *)d = *(const pair *)s;
    while (n--)
        *d++ = *s++;
    return to;
}

void *
memmove(void *to, const void *from, size_t n)
{
    char *d = to;
    const char *s = from;
    if ((uintptr_t)d - (uintptr_t)s >= n)
        return memcpy(to, from, n);
    for (; n >= 16; n -= 16)
        *(pair *)(d + n - 16) = *(const pair *)(s + n - 16);
    while (n--)
        d[n] = s[n];
    return to;
}

void *
memset(void *to, int byte, size_t n)
{
    char *d = to;
    uint64_t half = (unsigned char)byte * 0x0101010101010101u;
    for (; n >= 16; n -= 16, d += 16)
        *(pair *)d = (pair){half, half};
    while (n--)
        *d++ = (char)byte;
    return to;
}

int
memcmp(const void *left, const void *right, size_t n)
{
    const unsigned char *a = left, *b = right;
    for (; n; n--, a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}
