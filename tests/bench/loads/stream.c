// SPDX-License-Identifier: Apache-2.0
// Description: STREAM's way of measuring: three arrays, ten passes, the best of all but the first.
// usage: stream read|copy|triad BYTES -> bytes a second, as loaded and stored
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PASSES 11
#define HUGE_PAGE ((size_t)2 << 20)

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Small pages, as the probe has them unless told otherwise.
static double *
array(size_t count, double value)
{
    char *memory = mmap(NULL, count * sizeof(double) + HUGE_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    memory = (char *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    madvise(memory, count * sizeof(double), MADV_NOHUGEPAGE);
    double *doubles = (double *)memory;
    for (size_t i = 0; i < count; i++)
        doubles[i] = value;
    return doubles;
}

int
main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const size_t count = strtoul(argv[2], NULL, 0) / sizeof(double);
    const char kind = argv[1][0];
    double *restrict a = array(count, 1.0), *restrict b = array(count, 2.0);
    double *restrict c = array(count, 3.0);
    double best = 1e9, sum = 0.0;
    for (int pass = 0; pass < PASSES; pass++) {
        const double began = now();
        if (kind == 'c') {
            for (size_t i = 0; i < count; i++)
                a[i] = b[i];
        } else if (kind == 't') {
            for (size_t i = 0; i < count; i++)
                a[i] = b[i] + 3.0 * c[i];
        } else {
            for (size_t i = 0; i < count; i++)
                sum += a[i];
        }
        const double took = now() - began;
        if (pass > 0 && took < best)
            best = took;
        __asm__ volatile("" ::: "memory");
    }
    const int arrays = kind == 'c' ? 2 : kind == 't' ? 3 : 1;
    printf("%.6e\n", arrays * 8.0 * (double)count / best);
    return sum < 0.0;
}
