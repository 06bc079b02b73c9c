// SPDX-License-Identifier: Apache-2.0
#include "opd/columns.h"

#include <errno.h>
#include <string.h>

size_t
opd_runs(const void *items, size_t stride, size_t size, size_t count, uint32_t *which,
         uint32_t *firsts)
{
    const uint8_t *item = items;
    size_t runs = 0;
    for (size_t i = 0; i < count; i++, item += stride) {
        if (i == 0 || memcmp(item, item - stride, size) != 0)
            firsts[runs++] = (uint32_t)i;
        which[i] = (uint32_t)(runs - 1);
    }
    return runs;
}

int
opd_gather(const uint32_t *table, size_t length, const uint32_t *which, size_t count, uint32_t *out)
{
    for (size_t i = 0; i < count; i++) {
        if (which[i] >= length)
            return -ERANGE;
        out[i] = table[which[i]];
    }
    return 0;
}

void
opd_shift(uint64_t *values, size_t count, uint64_t delta, int but_zero)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0 || !but_zero)
            values[i] += delta;
}

void
opd_steps(const uint64_t *values, size_t count, uint64_t before, uint64_t *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = values[i] - before;
        before = values[i];
    }
}
