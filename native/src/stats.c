// SPDX-License-Identifier: Apache-2.0
// Samples in order, blocks of pairs, spread, the distance of two distributions.
#include "opd/stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats_private.h"

enum { RUN = 16 }; // sorted by insertion before runs are merged
#define FENCE 1.5
#define CENTRAL_CUT 0.1

static void
sort_run(double *values, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        double value = values[i];
        size_t at = i;
        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

static void
merge(const double *from, double *to, size_t middle, size_t count)
{
    size_t a = 0, b = middle;
    for (size_t i = 0; i < count; i++)
        to[i] = b == count || (a < middle && from[a] <= from[b]) ? from[a++] : from[b++];
}

void
stats_sort_with(double *values, double *spare, size_t count)
{
    for (size_t at = 0; at < count; at += RUN)
        sort_run(values + at, count - at < RUN ? count - at : RUN);
    double *from = values, *to = spare;
    for (size_t width = RUN; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t length = count - at < 2 * width ? count - at : 2 * width;
            merge(from + at, to + at, width < length ? width : length, length);
        }
        double *swap = from;
        from = to;
        to = swap;
    }
    if (from != values)
        memcpy(values, from, count * sizeof(*values));
}

int
stats_are_finite(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return 0;
    return 1;
}

int
opd_stats_sort(double *values, size_t count)
{
    if (count > OPD_STATS_MAX)
        return -EINVAL;
    if (!stats_are_finite(values, count))
        return -EDOM;
    double *spare = malloc((count + 1) * sizeof(*spare));
    if (spare == NULL)
        return -ENOMEM;
    stats_sort_with(values, spare, count);
    free(spare);
    return 0;
}

double
stats_quantile(const double *ordered, size_t count, double share)
{
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    if (below + 1 >= count)
        return ordered[count - 1];
    double low = ordered[below], high = ordered[below + 1], share_of = place - (double)below;
    // A difference past what a double holds is not taken.
    return isfinite(high - low) ? low + (high - low) * share_of
                                : low * (1.0 - share_of) + high * share_of;
}

// In long double: sums of values that are nearly alike keep their last digits.
static double
mean_of(const double *values, size_t count)
{
    long double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return (double)(sum / count);
}

static double
middle_of(const double *values, size_t count, int middle, double *room, double *spare)
{
    memcpy(room, values, count * sizeof(*values));
    stats_sort_with(room, spare, count);
    if (middle == OPD_STATS_MEDIAN)
        return stats_quantile(room, count, 0.5);
    size_t cut = (size_t)((double)count * CENTRAL_CUT);
    return mean_of(room + cut, count - 2 * cut);
}

int
opd_stats_blocks(const double *before, const double *after, size_t count, size_t pairs, int middle,
                 double *logs)
{
    if (count == 0 || count > OPD_STATS_MAX || pairs == 0 || middle < OPD_STATS_MEDIAN ||
        middle > OPD_STATS_CENTRAL)
        return -EINVAL;
    if (!stats_are_finite(before, count) || !stats_are_finite(after, count))
        return -EDOM;
    size_t blocks = count / pairs > 0 ? count / pairs : 1;
    size_t most = count - (blocks - 1) * pairs;
    double *room = malloc(2 * most * sizeof(*room));
    if (room == NULL)
        return -ENOMEM;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < blocks; i++) {
        size_t at = i * pairs, length = i + 1 < blocks ? pairs : most;
        double below = middle_of(before + at, length, middle, room, room + most);
        double above = middle_of(after + at, length, middle, room, room + most);
        if (!(below > 0.0 && above > 0.0))
            rc = -EDOM;
        else
            logs[i] = log(above / below);
    }
    free(room);
    return rc;
}

// The median of distances from `centre`: those below it and those above are
// in order each, and are merged up to the middle.
static double
median_distance(const double *ordered, size_t count, double centre)
{
    size_t up = 0;
    while (up < count && ordered[up] < centre)
        up++;
    size_t down = up; // the next below is ordered[down - 1]
    double previous = 0.0, last = 0.0;
    for (size_t i = 0; i <= count / 2; i++) {
        previous = last;
        double below = down > 0 ? centre - ordered[down - 1] : INFINITY;
        double above = up < count ? ordered[up] - centre : INFINITY;
        if (below < above) {
            last = below;
            down--;
        } else {
            last = above;
            up++;
        }
    }
    return count % 2 ? last : previous + (last - previous) * 0.5;
}

int
opd_stats_spread(const double *ordered, size_t count, struct opd_stats_spread *out)
{
    if (count == 0 || count > OPD_STATS_MAX)
        return -EINVAL;
    if (!stats_are_finite(ordered, count))
        return -EDOM;
    *out = (struct opd_stats_spread){.mean = mean_of(ordered, count)};
    long double square = 0;
    for (size_t i = 0; i < count; i++) {
        long double distance = (long double)ordered[i] - out->mean;
        square += distance * distance;
    }
    out->variance = count > 1 ? (double)(square / (count - 1)) : 0.0;
    double low = stats_quantile(ordered, count, 0.25), high = stats_quantile(ordered, count, 0.75);
    out->low_fence = low - FENCE * (high - low);
    out->high_fence = high + FENCE * (high - low);
    for (size_t i = 0; i < count; i++) {
        out->below += ordered[i] < out->low_fence;
        out->above += ordered[i] > out->high_fence;
    }
    out->mad = median_distance(ordered, count, stats_quantile(ordered, count, 0.5));
    out->modes = stats_modes(ordered, count, out->variance);
    return 0;
}

int
opd_stats_distance(const double *a, size_t a_count, const double *b, size_t b_count, double *out)
{
    if (a_count == 0 || b_count == 0 || a_count > OPD_STATS_MAX || b_count > OPD_STATS_MAX)
        return -EINVAL;
    if (!stats_are_finite(a, a_count) || !stats_are_finite(b, b_count))
        return -EDOM;
    double most = 0.0;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        double value = a[i] < b[j] ? a[i] : b[j];
        while (i < a_count && a[i] <= value)
            i++;
        while (j < b_count && b[j] <= value)
            j++;
        double distance = fabs((double)i / (double)a_count - (double)j / (double)b_count);
        most = distance > most ? distance : most;
    }
    *out = most;
    return 0;
}
