// SPDX-License-Identifier: Apache-2.0
// The hierarchical bootstrap. What was drawn is counted by rank, not listed and
// sorted: a resample is one pass over the blocks.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stats_private.h"

void
stats_random_seed(struct stats_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) { // splitmix64
        uint64_t z = (seed += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        random->state[i] = z ^ (z >> 31);
    }
}

struct pool {
    size_t count;
    double *ordered; // all blocks, ascending
    double *spare;
    uint32_t *ranks; // of each block as it was given
    uint32_t *times; // that each rank was drawn
    size_t *starts;  // of the groups
};

// The rank of each block: equal ones may take each other's.
static void
rank(struct pool *pool, const double *blocks)
{
    for (size_t i = 0; i < pool->count; i++) {
        size_t low = 0, high = pool->count;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (pool->ordered[middle] < blocks[i])
                low = middle + 1;
            else
                high = middle;
        }
        pool->ranks[i] = (uint32_t)low;
    }
}

// The mean of the `drawn` counted values without `cut` at each end.
static double
mean_within(const struct pool *pool, uint64_t drawn, uint64_t cut)
{
    uint64_t before = 0, end = drawn - cut;
    double sum = 0.0;
    for (size_t i = 0; i < pool->count && before < end; i++) {
        uint64_t after = before + pool->times[i];
        uint64_t from = before > cut ? before : cut, to = after < end ? after : end;
        if (to > from)
            sum += (double)(to - from) * pool->ordered[i];
        before = after;
    }
    return sum / (double)(end - cut);
}

static double
draw_once(const struct pool *pool, const uint32_t *sizes, uint32_t groups, double trim,
          struct stats_random *random)
{
    uint64_t drawn = 0;
    memset(pool->times, 0, pool->count * sizeof(*pool->times));
    for (uint32_t g = 0; g < groups; g++) {
        size_t group = groups > 1 ? stats_random_below(random, groups) : 0;
        const uint32_t *ranks = pool->ranks + pool->starts[group];
        for (uint32_t i = 0; i < sizes[group]; i++)
            pool->times[ranks[stats_random_below(random, sizes[group])]]++;
        drawn += sizes[group];
    }
    return mean_within(pool, drawn, (uint64_t)((double)drawn * trim));
}

int
opd_stats_resample(const double *blocks, const uint32_t *sizes, uint32_t groups, double trim,
                   uint64_t seed, uint32_t resamples, double *draws)
{
    struct pool pool = {0};
    if (groups == 0 || groups > OPD_STATS_MAX || resamples == 0 ||
        resamples > OPD_STATS_RESAMPLES_MAX || !(trim >= 0.0 && trim < 0.5))
        return -EINVAL;
    for (uint32_t g = 0; g < groups; g++) {
        if (sizes[g] == 0 || sizes[g] > OPD_STATS_MAX - pool.count)
            return -EINVAL;
        pool.count += sizes[g];
    }
    if (!stats_are_finite(blocks, pool.count))
        return -EDOM;
    pool.ordered = malloc(pool.count * sizeof(*pool.ordered));
    // Also of the draws' sorting.
    size_t beside = pool.count > resamples ? pool.count : resamples;
    pool.spare = malloc(beside * sizeof(*pool.spare));
    pool.ranks = malloc(pool.count * sizeof(*pool.ranks));
    pool.times = malloc(pool.count * sizeof(*pool.times));
    pool.starts = malloc(groups * sizeof(*pool.starts));
    int rc = pool.ordered && pool.spare && pool.ranks && pool.times && pool.starts ? 0 : -ENOMEM;
    if (rc == 0) {
        memcpy(pool.ordered, blocks, pool.count * sizeof(*blocks));
        stats_sort_with(pool.ordered, pool.spare, pool.count);
        rank(&pool, blocks);
        for (uint32_t g = 0, start = 0; g < groups; start += sizes[g++])
            pool.starts[g] = start;
        struct stats_random random;
        stats_random_seed(&random, seed);
        for (uint32_t i = 0; i < resamples; i++)
            draws[i] = draw_once(&pool, sizes, groups, trim, &random);
        stats_sort_with(draws, pool.spare, resamples);
    }
    free(pool.ordered);
    free(pool.spare);
    free(pool.ranks);
    free(pool.times);
    free(pool.starts);
    return rc;
}
