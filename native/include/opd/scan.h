// SPDX-License-Identifier: Apache-2.0
// Sums the hits of a store's blocks (opd.store.blocks) by chosen cells, of the
// groups that a filter lets through: what a report is made of. Cells are u32
// as the block has them: numbers of names, pid + 1 and so on, a run's events
// by the numbers that opd_scan_events gives them. Single threaded; bounded.
#ifndef OPD_SCAN_H
#define OPD_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum opd_scan_column {
    OPD_SCAN_EVENT,
    OPD_SCAN_MODE,
    OPD_SCAN_PID,
    OPD_SCAN_THREAD,
    OPD_SCAN_CPU,
    OPD_SCAN_IMAGE,
    OPD_SCAN_COMM,
    OPD_SCAN_CGROUP,
    OPD_SCAN_SYMBOL,
    OPD_SCAN_COLUMNS,
};

#define OPD_SCAN_KEYS 16
#define OPD_SCAN_TESTS 2048
#define OPD_SCAN_NO_EVENT UINT32_MAX

// A cell of a row. With `map` it is map[value], and 0 where that ends.
struct opd_scan_key {
    uint32_t column;
    uint32_t map_count;
    const uint32_t *map;
};

enum opd_scan_operation {
    OPD_SCAN_SET,   // the cell's bit is set in `bits` (none past their end)
    OPD_SCAN_RANGE, // low <= cell <= high
    OPD_SCAN_AND,   // of the two results before
    OPD_SCAN_OR,
    OPD_SCAN_NOT, // of the one before
};

// A step of the filter, operands before their operator.
struct opd_scan_test {
    uint32_t operation;
    uint32_t column;
    uint32_t low, high;
    const uint8_t *bits;
    uint32_t bit_count;
};

// Rows, heaviest first.
struct opd_scan_rows {
    uint32_t rows;
    const uint32_t *cells; // keys of the first row, then of the second, …
    const uint32_t *number;
    const uint64_t *samples, *weight;
};

// What one of the chosen rows has in one bucket, in no order.
struct opd_scan_series {
    uint32_t entries;
    const uint32_t *bucket, *row; // row: its place among the chosen
    const uint64_t *samples, *weight;
};

// By bucket and event, in order of first sight. `all_*`: before the filter.
struct opd_scan_totals {
    uint32_t entries;
    const uint32_t *bucket, *event;
    const uint64_t *samples, *weight, *all_samples, *all_weight;
};

struct opd_scan;

// `row_limit` bounds the rows, and the entries of a series. Maps and bits stay
// the caller's and must outlive the scan. NULL with errno EINVAL (no key, an
// operator without operands, more than 64 results waiting, no such column or
// operation) or ENOMEM.
struct opd_scan *opd_scan_create(const struct opd_scan_key *keys, uint32_t key_count,
                                 const struct opd_scan_test *tests, uint32_t test_count,
                                 uint32_t row_limit);
void opd_scan_destroy(struct opd_scan *scan);

// Blocks from now on are of a run whose event i is number map[i], or is left
// out (OPD_SCAN_NO_EVENT, as is what lies past the end). 0 or -ENOMEM.
int opd_scan_events(struct opd_scan *scan, const uint32_t *map, uint32_t count);

// Adds an inflated block: `sfile_columns` (8, or 9 with cgroup) columns of
// sample files, four of groups, and others that are not looked at. 0; -EBADMSG
// when it is damaged (then nothing was added), -E2BIG at the limit, -ENOMEM.
int opd_scan_add(struct opd_scan *scan, const uint8_t *data, size_t size, uint32_t sfile_columns,
                 uint32_t bucket);

// The `limit` heaviest rows and those that weigh as much as the last of them;
// 0: all. What is pointed to is valid until the next call. 0 or -ENOMEM.
int opd_scan_rows(struct opd_scan *scan, uint32_t limit, struct opd_scan_rows *rows);
// Begins the series of the rows of these numbers: what is added from now on
// counts for them alone, by bucket, and for the totals, which begin anew.
int opd_scan_choose(struct opd_scan *scan, const uint32_t *numbers, uint32_t count);
int opd_scan_series(struct opd_scan *scan, struct opd_scan_series *series);
int opd_scan_totals(struct opd_scan *scan, struct opd_scan_totals *totals);

#endif
