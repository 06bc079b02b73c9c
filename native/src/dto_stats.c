// SPDX-License-Identifier: Apache-2.0
// From raw ticks to what a verdict is made of: paired blocks, and the fixed gate
// of old beside it.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "opd/dto.h"

static int
by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

// The value that `share` of ascending samples are below, on a straight line
// between two.
static double
quantile(const uint64_t *ordered, size_t count, double share)
{
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    if (below + 1 >= count)
        return (double)ordered[count - 1];
    double low = (double)ordered[below], high = (double)ordered[below + 1];
    return low + (high - low) * (place - (double)below);
}

// The mean from the 10th to the 90th percentile.
static double
middle_mean(const uint64_t *ordered, size_t count)
{
    size_t cut = count / 10;
    double sum = 0;
    for (size_t i = cut; i < count - cut; i++)
        sum += (double)ordered[i];
    return sum / (double)(count - 2 * cut);
}

// Of `count` samples of each of two columns.
static double
level(uint64_t *room, const uint64_t *first, const uint64_t *second, size_t count, uint32_t mean)
{
    size_t all = second ? 2 * count : count;
    memcpy(room, first, count * sizeof(*room));
    if (second)
        memcpy(room + count, second, count * sizeof(*room));
    qsort(room, all, sizeof(*room), by_value);
    return mean ? middle_mean(room, all) : quantile(room, all, 0.5);
}

int64_t
opd_dto_blocks(const uint64_t *ticks, uint64_t iterations, uint32_t block, uint32_t mean,
               double *effect, double *null)
{
    if (iterations == 0 || block == 0)
        return -EINVAL;
    const uint64_t *arms[OPD_DTO_ARMS];
    for (uint32_t arm = 0; arm < OPD_DTO_ARMS; arm++)
        arms[arm] = ticks + arm * iterations;
    uint64_t blocks = iterations / block ? iterations / block : 1;
    uint64_t *room = malloc(2 * (block + iterations % block + iterations / blocks) * sizeof(*room));
    if (room == NULL)
        return -ENOMEM;
    int64_t rc = (int64_t)blocks;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = i * block, count = i + 1 < blocks ? block : iterations - at;
        double a = level(room, arms[OPD_DTO_A] + at, NULL, count, mean);
        double again = level(room, arms[OPD_DTO_A_AGAIN] + at, NULL, count, mean);
        double below = level(room, arms[OPD_DTO_A] + at, arms[OPD_DTO_A_AGAIN] + at, count, mean);
        double above = level(room, arms[OPD_DTO_B] + at, arms[OPD_DTO_B_AGAIN] + at, count, mean);
        if (!(a > 0 && again > 0 && below > 0 && above > 0)) {
            rc = -EDOM;
            break;
        }
        effect[i] = log(above / below);
        null[i] = log(again / a);
    }
    free(room);
    return rc;
}

uint64_t
opd_dto_quantum(const uint64_t *samples, uint64_t count)
{
    uint64_t *ordered = count ? malloc(count * sizeof(*ordered)) : NULL, least = 0;
    if (ordered == NULL)
        return 0;
    memcpy(ordered, samples, count * sizeof(*ordered));
    qsort(ordered, count, sizeof(*ordered), by_value);
    for (uint64_t i = 1; i < count; i++) {
        uint64_t step = ordered[i] - ordered[i - 1];
        if (step && (least == 0 || step < least))
            least = step;
    }
    free(ordered);
    return least;
}

// The greatest distance of two empirical distributions of `count` samples each.
static double
ks_distance(const uint64_t *a, const uint64_t *b, size_t count)
{
    size_t i = 0, k = 0, most = 0;
    while (i < count && k < count) {
        uint64_t at = a[i] < b[k] ? a[i] : b[k];
        while (i < count && a[i] == at)
            i++;
        while (k < count && b[k] == at)
            k++;
        size_t apart = i > k ? i - k : k - i;
        most = apart > most ? apart : most;
    }
    return (double)most / (double)count;
}

// Kolmogorov's series for two samples of `count` each.
static double
ks_chance(double distance, size_t count)
{
    double root = sqrt((double)count / 2);
    double lambda = (root + 0.12 + 0.11 / root) * distance, sum = 0;
    if (lambda < 0.2)
        return 1;
    for (int k = 1; k <= 100; k++) {
        double term = exp(-2.0 * k * k * lambda * lambda);
        sum += k % 2 ? term : -term;
        if (term < 1e-12)
            break;
    }
    double p = 2 * sum;
    return p < 0 ? 0 : p > 1 ? 1 : p;
}

static uint64_t
above(const uint64_t *ordered, size_t count, double fence)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((double)ordered[middle] > fence)
            high = middle;
        else
            low = middle + 1;
    }
    return count - low;
}

int
opd_dto_gate(uint64_t *baseline, uint64_t *current, uint64_t count, struct opd_dto_gate *out)
{
    if (count == 0)
        return -EINVAL;
    qsort(baseline, count, sizeof(*baseline), by_value);
    qsort(current, count, sizeof(*current), by_value);
    size_t cut = count / 10, kept = count - 2 * cut;
    uint64_t *both = malloc(2 * count * sizeof(*both));
    if (both == NULL)
        return -ENOMEM;
    memcpy(both, baseline, count * sizeof(*both));
    memcpy(both + count, current, count * sizeof(*both));
    qsort(both, 2 * count, sizeof(*both), by_value);
    double q1 = quantile(both, 2 * count, 0.25), q3 = quantile(both, 2 * count, 0.75);
    double fence = q3 + 1.5 * (q3 - q1);
    free(both);
    double distance = ks_distance(baseline + cut, current + cut, kept);
    *out = (struct opd_dto_gate){
        .baseline_mean = middle_mean(baseline, count),
        .current_mean = middle_mean(current, count),
        .ks_d = distance,
        .ks_p = ks_chance(distance, kept),
        .baseline_outliers = above(baseline, count, fence),
        .current_outliers = above(current, count, fence),
        .baseline_median = quantile(baseline, count, 0.5),
        .current_median = quantile(current, count, 0.5),
    };
    return 0;
}
