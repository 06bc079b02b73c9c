// SPDX-License-Identifier: Apache-2.0
// The CPU's own clock (TSC, CNTVCT), calibrated against CLOCK_MONOTONIC_RAW,
// and log-linear histograms of its differences. Used by the probes' loops.
#ifndef OPD_TICKS_H
#define OPD_TICKS_H
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t
opd_raw_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Not serialising: a fault or a dependence between two reads orders them.
static inline uint64_t
opd_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return opd_raw_ns();
#endif
}

struct opd_ticks_rate {
    double per_ns;      // ticks in a nanosecond
    double error;       // bound of per_ns's relative error, from the reads' brackets
    uint32_t invariant; // 1: ticks at one rate in all power states (CPUID's word)
};

// Compares both clocks over `duration_ns`. 0, or -EINVAL for a duration of 0.
int opd_ticks_calibrate(uint64_t duration_ns, struct opd_ticks_rate *out);

// 32 bins an octave (3 % wide); values below 32 have a bin each.
enum { OPD_TICKS_BINS = 1920 };

static inline uint32_t
opd_ticks_bin(uint64_t value)
{
    if (value < 32)
        return (uint32_t)value;
    uint32_t exponent = 63u - (uint32_t)__builtin_clzll(value);
    return (exponent - 4) * 32 + (uint32_t)((value >> (exponent - 5)) & 31);
}

// The smallest value of a bin; bin + 1 gives where it ends.
static inline double
opd_ticks_bin_low(uint32_t bin)
{
    if (bin < 32)
        return bin;
    uint32_t exponent = bin / 32 + 4;
    return (double)(32 + bin % 32) * (double)(1ull << (exponent - 5));
}

// Cycles of the core in a nanosecond: a chain of `adds` dependent additions,
// one a cycle on every core that opd knows. Also warms a core up.
double opd_core_ghz(uint64_t adds);
#endif
