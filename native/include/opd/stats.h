// SPDX-License-Identifier: Apache-2.0
// What many samples say: order, middles, densities, distances, and the
// hierarchical bootstrap. All return 0, or -errno: -EINVAL for counts outside
// of what stands here, -EDOM for what is no finite number, -ENOMEM.
#ifndef OPD_STATS_H
#define OPD_STATS_H
#include <stddef.h>
#include <stdint.h>

enum {
    OPD_STATS_MAX = 1 << 26, // values
    OPD_STATS_RESAMPLES_MAX = 1 << 20,
    OPD_STATS_PERMUTATIONS_MAX = 1 << 20,
};

// Sorts in place, ascending; -0 and 0 are alike and stay as they came.
int opd_stats_sort(double *values, size_t count);

// Values anew, drawn `resamples` times: as many of the groups as there are,
// then of each drawn group as many of its blocks as it has, all with putting
// back; each time the mean without the least and the greatest `trim` of what
// was drawn. `blocks` has the groups one after the other, `sizes` (each > 0)
// how many blocks each has. Fills `draws`, ascending.
//
// The generator is xoshiro256**, its state four numbers of splitmix64 from
// `seed`. An index below n is (number * n) >> 64. One group is not drawn. The
// same blocks and seed give the same draws everywhere, to rounding.
int opd_stats_resample(const double *blocks, const uint32_t *sizes, uint32_t groups, double trim,
                       uint64_t seed, uint32_t resamples, double *draws);

enum opd_stats_middle {
    OPD_STATS_MEDIAN,
    OPD_STATS_CENTRAL, // the mean of the central 80 %
};

// Of each `pairs` (> 0) pairs in order the log of the middle of `after` by
// that of `before`; a rest shorter than that joins the last. Fills `logs`
// with count / pairs values, at least one. -EDOM when a middle is not above 0.
int opd_stats_blocks(const double *before, const double *after, size_t count, size_t pairs,
                     int middle, double *logs);

struct opd_stats_spread {
    double mean, variance; // by n - 1; 0 of one value
    double mad;            // median absolute deviation
    double low_fence, high_fence;
    uint64_t below, above; // of them outside of the fences: quartiles and 1.5 of what is between
    uint32_t modes;        // peaks of the density
};

// Of ascending values, at least one.
int opd_stats_spread(const double *ordered, size_t count, struct opd_stats_spread *out);

// The greatest distance between the distribution functions of two ascending
// arrays (Kolmogorov and Smirnov's D).
int opd_stats_distance(const double *a, size_t a_count, const double *b, size_t b_count,
                       double *out);

// Where ranks (their mean taken off) before and after differ most, for the
// sizes of both sides, each at least `side`; `place` is the first of the later
// side. `beyond`: of `permutations` shuffles (the generator above) how many
// come to as much; the count ends above `enough`. `place` 0: nowhere.
int opd_stats_change(const double *ranks, size_t count, size_t side, uint32_t permutations,
                     uint32_t enough, uint64_t seed, size_t *place, uint32_t *beyond);
#endif
