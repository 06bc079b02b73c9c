// SPDX-License-Identifier: Apache-2.0
// Order, blocks, spread, distance, and the bootstrap: known answers, bounds of
// what is drawn, wrong words refused. Against oracles: tests/native/test_stats.py.
#include "opd/stats.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "t.h"

static uint64_t
next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 20 ^ *state << 44;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void
sorts_as_qsort(void)
{
    enum { MOST = 5000 };
    static double values[MOST], expected[MOST];
    uint64_t state = 5;
    for (size_t count = 0; count < MOST; count = count * 3 / 2 + 1)
        for (uint64_t kinds = 1; kinds < 1u << 20; kinds <<= 6) {
            for (size_t i = 0; i < count; i++)
                values[i] = expected[i] = (double)(next(&state) % kinds) - (double)kinds / 2;
            CHECK(opd_stats_sort(values, count) == 0);
            qsort(expected, count, sizeof(*expected), compare);
            CHECK(memcmp(values, expected, count * sizeof(*values)) == 0);
        }
}

static void
no_number_is_refused(void)
{
    double out[2], bad[] = {1.0, NAN}, wide[] = {INFINITY, 1.0}, good[] = {1.0, 2.0};
    uint32_t two = 2;
    struct opd_stats_spread spread;
    CHECK(opd_stats_sort(bad, 2) == -EDOM);
    CHECK(opd_stats_resample(wide, &two, 1, 0.2, 1, 2, out) == -EDOM);
    CHECK(opd_stats_blocks(good, bad, 2, 2, OPD_STATS_MEDIAN, out) == -EDOM);
    CHECK(opd_stats_spread(wide, 2, &spread) == -EDOM);
    CHECK(opd_stats_distance(good, 2, bad, 2, out) == -EDOM);
}

static void
wrong_words_are_refused(void)
{
    double out[2], good[] = {1.0, 2.0};
    uint32_t two = 2, none = 0, much[] = {UINT32_MAX, 1};
    struct opd_stats_spread spread;
    CHECK(opd_stats_resample(good, &two, 0, 0.2, 1, 2, out) == -EINVAL);
    CHECK(opd_stats_resample(good, &none, 1, 0.2, 1, 2, out) == -EINVAL);
    CHECK(opd_stats_resample(good, much, 2, 0.2, 1, 2, out) == -EINVAL);
    CHECK(opd_stats_resample(good, &two, 1, 0.5, 1, 2, out) == -EINVAL);
    CHECK(opd_stats_resample(good, &two, 1, NAN, 1, 2, out) == -EINVAL);
    CHECK(opd_stats_resample(good, &two, 1, 0.2, 1, 0, out) == -EINVAL);
    CHECK(opd_stats_resample(good, &two, 1, 0.2, 1, UINT32_MAX, out) == -EINVAL);
    CHECK(opd_stats_blocks(good, good, 2, 0, OPD_STATS_MEDIAN, out) == -EINVAL);
    CHECK(opd_stats_blocks(good, good, 2, 2, 7, out) == -EINVAL);
    CHECK(opd_stats_spread(good, 0, &spread) == -EINVAL);
    CHECK(opd_stats_distance(good, 0, good, 2, out) == -EINVAL);
}

static void
blocks_join_the_rest(void)
{
    double before[] = {1, 1, 100, 2, 2, 2, 2}, after[] = {2, 2, 2, 2, 2, 2, 2}, logs[2];
    CHECK(opd_stats_blocks(before, after, 7, 3, OPD_STATS_MEDIAN, logs) == 0);
    CHECK(fabs(logs[0] - log(2)) < 1e-15 && logs[1] == 0.0);
    before[3] = before[4] = before[5] = before[6] = -1;
    CHECK(opd_stats_blocks(before, after, 7, 3, OPD_STATS_MEDIAN, logs) == -EDOM);
}

// Of samples in steps the median stays, and the mean of the middle moves.
static void
central_means_see_between_steps(void)
{
    double before[100], after[100], log_of;
    for (int i = 0; i < 100; i++) {
        before[i] = i % 5 == 0 ? 60 : 40;
        after[i] = i % 5 <= 1 ? 60 : 40;
    }
    CHECK(opd_stats_blocks(before, after, 100, 100, OPD_STATS_MEDIAN, &log_of) == 0);
    CHECK(log_of == 0.0);
    CHECK(opd_stats_blocks(before, after, 100, 100, OPD_STATS_CENTRAL, &log_of) == 0);
    // 20 and 40 of the 100 are high, 10 of each fall off at both ends.
    CHECK(fabs(log_of - log((40 * 50 + 60 * 30) / (40. * 70 + 60 * 10))) < 1e-12);
}

static void
draws_stay_within_the_blocks(void)
{
    enum { GROUPS = 7, MOST = 700, DRAWS = 300 };
    static double blocks[MOST], draws[DRAWS], again[DRAWS];
    uint32_t sizes[GROUPS];
    uint64_t state = 9;
    for (int round = 0; round < 50; round++) {
        size_t count = 0;
        double least = INFINITY, most = -INFINITY;
        for (int g = 0; g < GROUPS; g++) {
            sizes[g] = 1 + (uint32_t)(next(&state) % 100);
            for (uint32_t i = 0; i < sizes[g]; i++, count++) {
                blocks[count] = (double)(next(&state) % 1000) / 7 - 50;
                least = fmin(least, blocks[count]);
                most = fmax(most, blocks[count]);
            }
        }
        uint64_t seed = next(&state);
        CHECK(opd_stats_resample(blocks, sizes, GROUPS, 0.2, seed, DRAWS, draws) == 0);
        CHECK(opd_stats_resample(blocks, sizes, GROUPS, 0.2, seed, DRAWS, again) == 0);
        CHECK(memcmp(draws, again, sizeof(draws)) == 0);
        for (int i = 0; i < DRAWS; i++)
            CHECK(draws[i] >= least - 1e-9 && draws[i] <= most + 1e-9 &&
                  (i == 0 || draws[i] >= draws[i - 1]));
    }
}

static void
distance_of_ties(void)
{
    double a[] = {1, 1, 2, 2}, b[] = {1, 2, 2, 2}, c[] = {9, 9}, out;
    CHECK(opd_stats_distance(a, 4, b, 4, &out) == 0 && out == 0.25);
    CHECK(opd_stats_distance(a, 4, c, 2, &out) == 0 && out == 1.0);
    CHECK(opd_stats_distance(a, 4, a, 4, &out) == 0 && out == 0.0);
}

static void
extremes_do_not_break_the_spread(void)
{
    struct opd_stats_spread spread;
    double huge[] = {-1.7e308, -1e308, 0, 1e308, 1.7e308}, tiny[] = {5e-324, 5e-324, 1e-323};
    CHECK(opd_stats_spread(huge, 5, &spread) == 0 && spread.modes == 1);
    CHECK(spread.below + spread.above == 0);
    double apart[] = {-1.7e308, 1.7e308};
    CHECK(opd_stats_spread(apart, 2, &spread) == 0 && spread.below + spread.above == 0);
    CHECK(opd_stats_spread(tiny, 3, &spread) == 0 && spread.modes == 1);
    double two[] = {1, 5};
    CHECK(opd_stats_spread(two, 2, &spread) == 0 && spread.mad == 2 && spread.mean == 3);
}

static void
a_step_is_found(void)
{
    double ranks[20];
    size_t place;
    uint32_t beyond;
    for (int i = 0; i < 20; i++)
        ranks[i] = i - 9.5;
    CHECK(opd_stats_change(ranks, 20, 4, 2000, 1, 7, &place, &beyond) == 0);
    CHECK(place == 10 && beyond == 0);
    CHECK(opd_stats_change(ranks, 7, 4, 2000, 1, 7, &place, &beyond) == 0 && place == 0);
    memset(ranks, 0, sizeof(ranks));
    CHECK(opd_stats_change(ranks, 20, 4, 2000, 1, 7, &place, &beyond) == 0 && place == 0);
    CHECK(opd_stats_change(ranks, 20, 0, 2000, 1, 7, &place, &beyond) == -EINVAL);
}

int
main(void)
{
    RUN(sorts_as_qsort);
    RUN(no_number_is_refused);
    RUN(wrong_words_are_refused);
    RUN(blocks_join_the_rest);
    RUN(central_means_see_between_steps);
    RUN(draws_stay_within_the_blocks);
    RUN(distance_of_ties);
    RUN(extremes_do_not_break_the_spread);
    RUN(a_step_is_found);
    return 0;
}
