// SPDX-License-Identifier: Apache-2.0
#include "opd/calibrate.h"

#include "t.h"

#include <errno.h>
#include <stdint.h>

static void
every_loop_takes_some_time(void)
{
    double ns[5];
    for (int what = OPD_CALIBRATE_LOOP; what <= OPD_CALIBRATE_CLOCK; what++) {
        CHECK(opd_calibrate(what, 10, 1000, ns, 5) == 0);
        for (int at = 0; at < 5; at++)
            CHECK(ns[at] > 0);
    }
}

static void
what_makes_no_sense_is_refused(void)
{
    double ns = 7;
    CHECK(opd_calibrate(3, 1, 1, &ns, 1) == -EINVAL);
    CHECK(opd_calibrate(-1, 1, 1, &ns, 1) == -EINVAL);
    CHECK(opd_calibrate(OPD_CALIBRATE_LOOP, 1, 0, &ns, 1) == -EINVAL);
    CHECK(opd_calibrate(OPD_CALIBRATE_LOOP, 1, 1, &ns, 0) == -EINVAL);
    CHECK(ns == 7);
}

static void
fresh_memory_is_written_to(void)
{
    double ns = 0;
    CHECK(opd_calibrate_touch(1 << 20, &ns) == 0);
    CHECK(ns > 0);
    CHECK(opd_calibrate_touch(SIZE_MAX & ~(size_t)4095, &ns) == -ENOMEM);
}

int
main(void)
{
    RUN(every_loop_takes_some_time);
    RUN(what_makes_no_sense_is_refused);
    RUN(fresh_memory_is_written_to);
    return 0;
}
