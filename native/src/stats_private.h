// SPDX-License-Identifier: Apache-2.0
#ifndef OPD_STATS_PRIVATE_H
#define OPD_STATS_PRIVATE_H
#include "opd/stats.h"

struct stats_random {
    uint64_t state[4];
};

void stats_random_seed(struct stats_random *random, uint64_t seed);

static inline uint64_t
stats_random_next(struct stats_random *random)
{
    uint64_t *s = random->state, product = s[1] * 5, shifted = s[1] << 17;
    uint64_t result = (product << 7 | product >> 57) * 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

static inline size_t
stats_random_below(struct stats_random *random, size_t limit)
{
    return (size_t)(((unsigned __int128)stats_random_next(random) * limit) >> 64);
}

// Sorts with room for as many values beside.
void stats_sort_with(double *values, double *spare, size_t count);

int stats_are_finite(const double *values, size_t count);

// The value that `share` of ascending values are below; a straight line
// between two. `count` > 0.
double stats_quantile(const double *ordered, size_t count, double share);

// Peaks of a Gaussian kernel's density of ascending values.
uint32_t stats_modes(const double *ordered, size_t count, double variance);
#endif
