// SPDX-License-Identifier: Apache-2.0
// Small loops whose cost is known to be about nothing: what measuring itself
// costs on this machine, and whether the machine holds still meanwhile.
#ifndef OPD_CALIBRATE_H
#define OPD_CALIBRATE_H

#include <stddef.h>
#include <stdint.h>

enum opd_calibrate_what {
    OPD_CALIBRATE_LOOP,    // `work` dependent multiplications a turn
    OPD_CALIBRATE_SYSCALL, // getppid(2), asked of the kernel each time
    OPD_CALIBRATE_CLOCK,   // clock_gettime(CLOCK_MONOTONIC)
};

// Fills ns[0..samples) with what `turns` turns took together, in ns of
// CLOCK_MONOTONIC_RAW; whatever is measured is done once before, unmeasured.
// 0, or -EINVAL for an unknown `what`, no samples or no turns.
int opd_calibrate(int what, uint32_t work, uint64_t turns, double *ns, size_t samples);

// Maps `bytes` of fresh anonymous memory of small pages, writes to each page
// once and unmaps it: *ns is what the writes took. 0, or -errno of mmap.
int opd_calibrate_touch(size_t bytes, double *ns);

#endif
