// SPDX-License-Identifier: Apache-2.0
// Blocks summed and filtered against a plain reference; damaged ones add nothing.
#include <errno.h>
#include <string.h>

#include "opd/condense.h"
#include "opd/scan.h"
#include "t.h"

#define SFILES 7
#define GROUPS 200

struct block {
    uint8_t data[16384];
    size_t size;
    uint32_t sfiles[9][SFILES];
    uint32_t sfile[GROUPS], symbol[GROUPS];
    uint64_t hits[GROUPS], excess[GROUPS];
};

static uint32_t
random32(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void
make_block(struct block *block, uint32_t seed)
{
    uint32_t state = seed;
    for (int column = 0; column < 9; column++)
        for (int i = 0; i < SFILES; i++)
            block->sfiles[column][i] = random32(&state) % (column == 0 || column == 1 ? 2 : 4);
    for (int i = 0; i < GROUPS; i++) {
        block->sfile[i] = random32(&state) % SFILES;
        block->symbol[i] = random32(&state) % 20;
        block->hits[i] = 1 + random32(&state) % 1000;
        block->excess[i] = (uint64_t)(random32(&state) % 3) << 33;
    }
    struct opd_column columns[13];
    for (int i = 0; i < 9; i++)
        columns[i] = (struct opd_column){block->sfiles[i], 4, SFILES};
    columns[9] = (struct opd_column){block->sfile, 4, GROUPS};
    columns[10] = (struct opd_column){block->symbol, 4, GROUPS};
    columns[11] = (struct opd_column){block->hits, 8, GROUPS};
    columns[12] = (struct opd_column){block->excess, 8, GROUPS};
    CHECK(opd_pack_bound(columns, 13) <= sizeof block->data);
    block->size = opd_pack(columns, 13, block->data);
}

static const uint32_t both[] = {0, 1};

static void
sums_are_those_of_the_groups(void)
{
    const struct opd_scan_key keys[] = {{.column = OPD_SCAN_COMM}, {.column = OPD_SCAN_SYMBOL}};
    const uint8_t odd[] = {0xaa, 0xaa, 0xaa};
    // (pid is 1 or 2, or the symbol is odd) and not in cgroup 3.
    const struct opd_scan_test tests[] = {
        {.operation = OPD_SCAN_RANGE, .column = OPD_SCAN_PID, .low = 1, .high = 2},
        {.operation = OPD_SCAN_SET, .column = OPD_SCAN_SYMBOL, .bits = odd, .bit_count = 24},
        {.operation = OPD_SCAN_OR},
        {.operation = OPD_SCAN_RANGE, .column = OPD_SCAN_CGROUP, .low = 3, .high = 3},
        {.operation = OPD_SCAN_NOT},
        {.operation = OPD_SCAN_AND},
    };
    for (int filtered = 0; filtered < 2; filtered++) {
        struct opd_scan *scan = opd_scan_create(keys, 2, tests, filtered ? 6 : 0, 1000);
        CHECK(scan != NULL);
        CHECK(opd_scan_events(scan, both, 1) == 0); // event 1 is left out
        uint64_t samples[4][20] = {{0}}, weight[4][20] = {{0}}, all = 0, each[5] = {0};
        for (uint32_t bucket = 0; bucket < 5; bucket++) {
            struct block block;
            make_block(&block, bucket + 1);
            CHECK(opd_scan_add(scan, block.data, block.size, 9, bucket) == 0);
            for (int i = 0; i < GROUPS; i++) {
                uint32_t at = block.sfile[i], symbol = block.symbol[i];
                uint64_t heavy = block.hits[i] * block.sfiles[7][at] + block.excess[i];
                if (block.sfiles[0][at] == 1)
                    continue;
                all += heavy;
                uint32_t pid = block.sfiles[2][at];
                int good = (pid == 1 || pid == 2 || symbol % 2 == 1) && block.sfiles[8][at] != 3;
                if (filtered && !good)
                    continue;
                samples[block.sfiles[6][at]][symbol] += block.hits[i];
                weight[block.sfiles[6][at]][symbol] += heavy;
                each[bucket] += heavy;
            }
        }
        struct opd_scan_rows rows;
        CHECK(opd_scan_rows(scan, 0, &rows) == 0);
        uint32_t numbers[80], count = rows.rows;
        CHECK(count > 30 && count <= 80);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t comm = rows.cells[2 * i], symbol = rows.cells[2 * i + 1];
            CHECK(rows.samples[i] == samples[comm][symbol] && rows.samples[i] > 0);
            CHECK(rows.weight[i] == weight[comm][symbol]);
            CHECK(i == 0 || rows.weight[i] <= rows.weight[i - 1]);
            samples[comm][symbol] = 0;
            numbers[i] = rows.number[i];
        }
        for (int i = 0; i < 80; i++)
            CHECK(samples[i / 20][i % 20] == 0);
        uint64_t heaviest = rows.weight[0];
        // Once more, for the series; the rows stay, the totals begin anew.
        CHECK(opd_scan_choose(scan, numbers, count) == 0);
        for (uint32_t bucket = 0; bucket < 5; bucket++) {
            struct block block;
            make_block(&block, bucket + 1);
            CHECK(opd_scan_add(scan, block.data, block.size, 9, bucket) == 0);
        }
        struct opd_scan_series series;
        CHECK(opd_scan_series(scan, &series) == 0);
        uint64_t sums[5] = {0};
        for (uint32_t i = 0; i < series.entries; i++) {
            sums[series.bucket[i]] += series.weight[i];
            CHECK(series.row[i] < count);
        }
        CHECK(memcmp(sums, each, sizeof sums) == 0);
        struct opd_scan_totals totals;
        CHECK(opd_scan_totals(scan, &totals) == 0);
        for (uint32_t i = 0; i < totals.entries; i++) {
            CHECK(totals.event[i] == 0 && totals.weight[i] == each[totals.bucket[i]]);
            all -= totals.all_weight[i];
        }
        CHECK(totals.entries == 5 && all == 0);
        // Of one row alone, all in one bucket.
        CHECK(opd_scan_choose(scan, numbers, 1) == 0);
        for (uint32_t bucket = 0; bucket < 5; bucket++) {
            struct block block;
            make_block(&block, bucket + 1);
            CHECK(opd_scan_add(scan, block.data, block.size, 9, 3) == 0);
        }
        CHECK(opd_scan_series(scan, &series) == 0);
        CHECK(series.entries == 1 && series.bucket[0] == 3 && series.row[0] == 0);
        CHECK(series.weight[0] == heaviest);
        opd_scan_destroy(scan);
    }
}

static void
ties_at_the_cut_come_along(void)
{
    const struct opd_scan_key key = {.column = OPD_SCAN_SYMBOL};
    struct opd_scan *scan = opd_scan_create(&key, 1, NULL, 0, 100);
    CHECK(scan != NULL && opd_scan_events(scan, both, 2) == 0);
    uint8_t zero[8][1] = {{0}}, one[1] = {1}, sfile[6] = {0}, symbol[6] = {1, 2, 3, 4, 5, 6};
    uint8_t hits[6] = {1, 5, 3, 3, 3, 9}, none[6] = {0};
    struct opd_column columns[12];
    for (int i = 0; i < 8; i++)
        columns[i] = (struct opd_column){i == 7 ? one : zero[i], 1, 1};
    columns[8] = (struct opd_column){sfile, 1, 6};
    columns[9] = (struct opd_column){symbol, 1, 6};
    columns[10] = (struct opd_column){hits, 1, 6};
    columns[11] = (struct opd_column){none, 1, 6};
    uint8_t data[512];
    size_t size = opd_pack(columns, 12, data);
    CHECK(opd_scan_add(scan, data, size, 8, 0) == 0); // of schema 1: no cgroup
    struct opd_scan_rows rows;
    CHECK(opd_scan_rows(scan, 3, &rows) == 0);
    CHECK(rows.rows == 5 && rows.cells[0] == 6 && rows.cells[1] == 2 && rows.samples[4] == 3);
    CHECK(opd_scan_rows(scan, 2, &rows) == 0 && rows.rows == 2);
    opd_scan_destroy(scan);
}

static void
cells_are_mapped(void)
{
    const uint32_t map[] = {9, 7, 7};
    const struct opd_scan_key keys[] = {{.column = OPD_SCAN_CGROUP, .map = map, .map_count = 3},
                                        {.column = OPD_SCAN_CGROUP}};
    struct opd_scan *scan = opd_scan_create(keys, 2, NULL, 0, 100);
    CHECK(scan != NULL && opd_scan_events(scan, both, 2) == 0);
    struct block block;
    make_block(&block, 3);
    CHECK(opd_scan_add(scan, block.data, block.size, 9, 0) == 0);
    struct opd_scan_rows rows;
    CHECK(opd_scan_rows(scan, 0, &rows) == 0 && rows.rows > 1);
    for (uint32_t i = 0; i < rows.rows; i++) {
        uint32_t cell = rows.cells[2 * i + 1];
        CHECK(rows.cells[2 * i] == (cell < 3 ? map[cell] : 0));
    }
    opd_scan_destroy(scan);
}

static void
damage_adds_nothing(void)
{
    const struct opd_scan_key key = {.column = OPD_SCAN_SYMBOL};
    struct opd_scan *scan = opd_scan_create(&key, 1, NULL, 0, 100);
    CHECK(scan != NULL && opd_scan_events(scan, both, 2) == 0);
    struct block block;
    make_block(&block, 5);
    for (size_t size = 0; size < block.size; size++)
        CHECK(opd_scan_add(scan, block.data, size, 9, 0) == -EBADMSG);
    CHECK(opd_scan_add(scan, block.data, block.size, 7, 0) == -EBADMSG);
    CHECK(opd_scan_add(scan, block.data, block.size, 10, 0) == -EBADMSG);
    struct opd_scan_rows rows;
    CHECK(opd_scan_rows(scan, 0, &rows) == 0 && rows.rows == 0);
    // Any byte of the header changed: refused, or read within the block.
    for (size_t at = 0; at < 1 + 13 * 5; at++) {
        struct block other = block;
        other.data[at] ^= 0x55;
        int rc = opd_scan_add(scan, other.data, other.size, 9, 0);
        CHECK(rc == 0 || rc == -EBADMSG);
    }
    opd_scan_destroy(scan);
}

static void
limits_are_kept(void)
{
    const struct opd_scan_key key = {.column = OPD_SCAN_SYMBOL};
    struct opd_scan *scan = opd_scan_create(&key, 1, NULL, 0, 5);
    CHECK(scan != NULL && opd_scan_events(scan, both, 2) == 0);
    struct block block;
    make_block(&block, 7);
    CHECK(opd_scan_add(scan, block.data, block.size, 9, 0) == -E2BIG);
    opd_scan_destroy(scan);
    const struct opd_scan_test test = {.operation = OPD_SCAN_AND};
    CHECK(opd_scan_create(&key, 1, &test, 1, 5) == NULL && errno == EINVAL);
    const struct opd_scan_key strange = {.column = OPD_SCAN_COLUMNS};
    CHECK(opd_scan_create(&strange, 1, NULL, 0, 5) == NULL && errno == EINVAL);
    CHECK(opd_scan_create(&key, 0, NULL, 0, 5) == NULL && errno == EINVAL);
}

int
main(void)
{
    RUN(sums_are_those_of_the_groups);
    RUN(ties_at_the_cut_come_along);
    RUN(cells_are_mapped);
    RUN(damage_adds_nothing);
    RUN(limits_are_kept);
    return 0;
}
