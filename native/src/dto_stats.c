// SPDX-License-Identifier: Apache-2.0
// From raw ticks to what a verdict is made of: paired blocks.
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
