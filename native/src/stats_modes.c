// SPDX-License-Identifier: Apache-2.0
// Peaks of a density: a Gaussian kernel of Silverman's width on a grid. A peak
// that hardly rises above the dip beside it is none.
#include <math.h>

#include "stats_private.h"

enum { GRID = 256, VALUES_MOST = 2000 };
#define REACH 4.0       // kernels; what is further away adds nothing
#define PROMINENCE 0.1  // of the highest: a peak rises so far above the dip beside it
#define FAR_OUT 0.005   // tails beyond are outliers, not modes
#define QUARTILES 1.349 // between those of the normal law, in standard deviations

static uint32_t
peaks(const double *density)
{
    double most = 0.0, low = 0.0, high = 0.0;
    for (int i = 0; i < GRID; i++)
        most = density[i] > most ? density[i] : most;
    uint32_t found = 0;
    int rising = 1;
    for (int i = 0; i <= GRID; i++) { // it ends at 0
        double value = i < GRID ? density[i] : 0.0;
        if (rising) {
            high = value > high ? value : high;
            if (high - value >= PROMINENCE * most) {
                found++;
                rising = 0;
                low = value;
            }
        } else {
            low = value < low ? value : low;
            if (value - low >= PROMINENCE * most) {
                rising = 1;
                high = value;
            }
        }
    }
    return found > 0 ? found : 1;
}

uint32_t
stats_modes(const double *ordered, size_t count, double variance)
{
    double range = ordered[count - 1] - ordered[0];
    if (count < 3 || !(range > 0.0) || !isfinite(range))
        return 1;
    // Of very many each k-th: the shape is the same.
    size_t used = count > VALUES_MOST ? VALUES_MOST : count;
    double every = (double)count / (double)used, deviation = sqrt(variance);
    double between =
        (stats_quantile(ordered, count, 0.75) - stats_quantile(ordered, count, 0.25)) / QUARTILES;
    double narrow = between > 0.0 && between < deviation ? between : deviation;
    double width = 0.9 * narrow * pow((double)used, -0.2);
    double first = stats_quantile(ordered, count, FAR_OUT) - width;
    double last = stats_quantile(ordered, count, 1.0 - FAR_OUT) + width;
    double step = (last - first) / (GRID - 1);
    if (!(width > 0.0) || !(step > 0.0) || !isfinite(step) || !isfinite(width))
        return 1;
    width = width > step ? width : step; // a narrower one falls between the points
    double density[GRID] = {0};
    for (size_t i = 0; i < used; i++) {
        double value = ordered[(size_t)((double)i * every)];
        double from = ceil((value - REACH * width - first) / step);
        double to = floor((value + REACH * width - first) / step);
        if (!(from < GRID && to >= 0.0))
            continue;
        int begin = from > 0.0 ? (int)from : 0, end = to < GRID - 1 ? (int)to : GRID - 1;
        for (int at = begin; at <= end; at++) {
            double distance = (first + at * step - value) / width;
            density[at] += exp(-0.5 * distance * distance);
        }
    }
    return peaks(density);
}
