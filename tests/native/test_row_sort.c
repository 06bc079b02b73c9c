// SPDX-License-Identifier: Apache-2.0
// Rows by digits come out as a comparison puts them, whatever the keys.
#include "t.h"
#include "../../native/src/row_sort.h"
#include <string.h>

static uint64_t
next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 20 ^ *state << 44;
}

static int
before(const struct sort_row *a, const struct sort_row *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    if (a->sfile != b->sfile)
        return a->sfile < b->sfile;
    return a->hits < b->hits; // here: its place before
}

static void
check(size_t count, uint64_t key_mask, uint32_t sfile_mask, uint64_t seed)
{
    struct sort_row *rows = calloc(2 * count + 1, sizeof *rows);
    uint64_t sum = 0, sorted_sum = 0;
    for (size_t i = 0; i < count; i++) {
        rows[i] = (struct sort_row){.key = next(&seed) & key_mask,
                                    .sfile = (uint32_t)next(&seed) & sfile_mask,
                                    .hits = i,
                                    .excess = next(&seed)};
        sum += rows[i].excess ^ rows[i].key;
    }
    const struct sort_row *sorted = opd_sort_rows(rows, rows + count, count);
    for (size_t i = 0; i < count; i++) {
        sorted_sum += sorted[i].excess ^ sorted[i].key;
        CHECK(i == 0 || before(&sorted[i - 1], &sorted[i]));
    }
    CHECK(sum == sorted_sum);
    free(rows);
}

static void
test_any_keys(void)
{
    static const uint64_t masks[] = {0, 1, 0x7ff, 0x800, 0xfff, UINT64_MAX, 1ull << 63};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++)
        for (size_t count = 0; count < 5000; count = count * 3 + 1) {
            check(count, masks[i], 0, i);
            check(count, masks[i], UINT32_MAX, i);
            check(count, masks[i], 0x803, i);
        }
}

int
main(void)
{
    RUN(test_any_keys);
    return 0;
}
