// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "opd/ticks.h"

struct reading {
    double ns, ticks, bracket;
};

// The clock read between two reads of the other: the tightest of several.
static struct reading
both(void)
{
    struct reading best = {.bracket = 1e18};
    for (int i = 0; i < 64; i++) {
        uint64_t before = opd_raw_ns(), ticks = opd_ticks(), after = opd_raw_ns();
        if ((double)(after - before) < best.bracket) {
            best.bracket = (double)(after - before);
            best.ns = (double)before + best.bracket / 2;
            best.ticks = (double)ticks;
        }
    }
    return best;
}

int
opd_ticks_calibrate(uint64_t duration_ns, struct opd_ticks_rate *out)
{
    if (duration_ns == 0)
        return -EINVAL;
    struct reading first = both();
    uint64_t end = opd_raw_ns() + duration_ns;
    while (opd_raw_ns() < end)
        ;
    struct reading last = both();
    out->per_ns = (last.ticks - first.ticks) / (last.ns - first.ns);
    out->error = (first.bracket + last.bracket) / 2 / (last.ns - first.ns);
    out->invariant = 1;
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    out->invariant = __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
#endif
    return 0;
}

double
opd_core_ghz(uint64_t adds)
{
    uint64_t value = adds, rounds = adds / 16 + 1;
    uint64_t start = opd_raw_ns();
    for (uint64_t i = 0; i < rounds; i++) {
#if defined(__x86_64__)
#define ADD4 "add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n"
#else
#define ADD4 "add %0, %0, #1\n add %0, %0, #1\n add %0, %0, #1\n add %0, %0, #1\n"
#endif
        __asm__ volatile(ADD4 ADD4 ADD4 ADD4 : "+r"(value));
    }
    uint64_t spent = opd_raw_ns() - start;
    return spent ? (double)(rounds * 16) / (double)spent : 0;
}
