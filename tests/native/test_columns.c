// SPDX-License-Identifier: Apache-2.0
// Columns: runs of equal neighbours, look-ups, differences, sums that wrap.
#include "opd/columns.h"
#include "t.h"
#include <errno.h>
#include <string.h>

static void
test_runs_are_of_equal_neighbours(void)
{
    static const struct {
        uint32_t key, other;
    } items[] = {{1, 9}, {1, 8}, {2, 8}, {1, 8}, {1, 8}};
    uint32_t which[5], firsts[5];
    CHECK(opd_runs(items, 8, 8, 5, which, firsts) == 4);
    CHECK(memcmp(which, (uint32_t[]){0, 1, 2, 3, 3}, sizeof which) == 0);
    CHECK(memcmp(firsts, (uint32_t[]){0, 1, 2, 3}, 16) == 0);
    CHECK(opd_runs(items, 8, 4, 5, which, firsts) == 3);
    CHECK(memcmp(which, (uint32_t[]){0, 0, 1, 2, 2}, sizeof which) == 0);
    CHECK(memcmp(firsts, (uint32_t[]){0, 2, 3}, 12) == 0);
    CHECK(opd_runs(items, 8, 8, 0, which, firsts) == 0);
}

static void
test_a_look_up_stays_in_the_table(void)
{
    static const uint32_t table[] = {5, 6, 7}, which[] = {2, 0, 2}, wrong[] = {0, 3};
    uint32_t out[3];
    CHECK(opd_gather(table, 3, which, 3, out) == 0);
    CHECK(out[0] == 7 && out[1] == 5 && out[2] == 7);
    CHECK(opd_gather(table, 3, wrong, 2, out) == -ERANGE);
    CHECK(opd_gather(table, 0, which, 0, out) == 0);
}

static void
test_numbers_wrap(void)
{
    uint64_t values[] = {0, 1, UINT64_MAX}, out[3];
    opd_steps(values, 3, 1, out);
    CHECK(out[0] == UINT64_MAX && out[1] == 1 && out[2] == UINT64_MAX - 1);
    opd_shift(values, 3, UINT64_MAX, 1);
    CHECK(values[0] == 0 && values[1] == 0 && values[2] == UINT64_MAX - 1);
    opd_shift(values, 3, 3, 0);
    CHECK(values[0] == 3 && values[1] == 3 && values[2] == 1);
}

int
main(void)
{
    RUN(test_runs_are_of_equal_neighbours);
    RUN(test_a_look_up_stays_in_the_table);
    RUN(test_numbers_wrap);
    return 0;
}
