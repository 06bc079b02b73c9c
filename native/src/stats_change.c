// SPDX-License-Identifier: Apache-2.0
// Where a series changed its level: the place where ranks before and after
// differ most, and how often shuffled ranks differ as much anywhere.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stats_private.h"

static double
best(const double *ranks, size_t count, size_t side, size_t *place)
{
    double total = 0.0, score = 0.0;
    *place = 0;
    for (size_t size = 1; size + side <= count; size++) {
        total += ranks[size - 1];
        if (size < side)
            continue;
        double scaled = total * total / ((double)size * (double)(count - size));
        if (scaled > score) {
            score = scaled;
            *place = size;
        }
    }
    return score;
}

int
opd_stats_change(const double *ranks, size_t count, size_t side, uint32_t permutations,
                 uint32_t enough, uint64_t seed, size_t *place, uint32_t *beyond)
{
    if (count > OPD_STATS_MAX || side == 0 || side > OPD_STATS_MAX ||
        permutations > OPD_STATS_PERMUTATIONS_MAX)
        return -EINVAL;
    if (!stats_are_finite(ranks, count))
        return -EDOM;
    *beyond = 0;
    double score = best(ranks, count, side, place);
    if (*place == 0)
        return 0;
    double *shuffled = malloc(count * sizeof(*shuffled));
    if (shuffled == NULL)
        return -ENOMEM;
    memcpy(shuffled, ranks, count * sizeof(*ranks));
    struct stats_random random;
    stats_random_seed(&random, seed);
    for (uint32_t i = 0; i < permutations && *beyond <= enough; i++) {
        for (size_t at = count; at > 1; at--) {
            size_t other = stats_random_below(&random, at);
            double swap = shuffled[at - 1];
            shuffled[at - 1] = shuffled[other];
            shuffled[other] = swap;
        }
        size_t there;
        *beyond += best(shuffled, count, side, &there) >= score;
    }
    free(shuffled);
    return 0;
}
