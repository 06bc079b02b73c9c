// SPDX-License-Identifier: Apache-2.0
// Any doubles and any sizes of groups: what comes out is in order and within.
#include "opd/stats.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
within(const double *draws, uint32_t count, double least, double most)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(draws[i] >= least - 1e-6 && draws[i] <= most + 1e-6) ||
            (i && draws[i] < draws[i - 1]))
            abort();
}

// Rounding of huge numbers would need a wider look than `within` takes.
static int
are_small(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(values[i] > -1e6 && values[i] < 1e6))
            return 0;
    return 1;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEAD = 8, DRAWS = 20 };
    if (size < HEAD)
        return 0;
    size_t count = (size - HEAD) / sizeof(double);
    uint32_t sizes[4], groups = data[0] % 5;
    double *values = malloc((count + 1) * sizeof(*values)), draws[DRAWS], distance;
    double *logs = malloc((count + 1) * sizeof(*logs));
    memcpy(values, data + HEAD, count * sizeof(*values));
    // The groups are exactly the values, or the call must refuse.
    size_t left = count;
    for (uint32_t g = 0; g < groups && g < 4; g++) {
        sizes[g] = (uint32_t)(g + 1 == groups || left < data[1 + g] ? left : data[1 + g]);
        left -= sizes[g];
    }
    groups = groups < 4 ? groups : 4;
    struct opd_stats_spread spread;
    double trim = data[5] / 400.0; // to beyond what is allowed
    int drawn = opd_stats_resample(values, sizes, groups, trim, data[6], DRAWS, draws);
    int blocked =
        opd_stats_blocks(values, values + count / 2, count / 2, data[7], data[6] % 3, logs);
    for (size_t i = 0; blocked == 0 && i < (count / 2 / data[7] ? count / 2 / data[7] : 1); i++)
        if (logs[i] != logs[i])
            abort();
    int ordered = opd_stats_sort(values, count);
    if (ordered == 0) {
        for (size_t i = 1; i < count; i++)
            if (values[i] < values[i - 1])
                abort();
        if (drawn == 0 && are_small(values, count))
            within(draws, DRAWS, values[0], values[count - 1]);
        if (opd_stats_spread(values, count, &spread) == 0 &&
            (spread.modes == 0 || spread.below + spread.above > count))
            abort();
        if (opd_stats_distance(values, count / 2, values + count / 2, count - count / 2,
                               &distance) == 0 &&
            !(distance >= 0.0 && distance <= 1.0))
            abort();
        size_t place;
        uint32_t beyond;
        if (opd_stats_change(values, count, data[1], 5, 3, 1, &place, &beyond) == 0 &&
            (place > count || beyond > 4))
            abort();
    }
    free(values);
    free(logs);
    return 0;
}
