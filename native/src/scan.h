// SPDX-License-Identifier: Apache-2.0
// What the rooms of scan share: tables of numbers and the sums beside them.
#ifndef OPD_SRC_SCAN_H
#define OPD_SRC_SCAN_H

#include "opd/scan.h"

struct opd_scan_sums {
    uint64_t key; // two 32-bit numbers
    uint64_t samples, weight;
};

// Sums by key, numbered in order of first sight.
struct opd_scan_table {
    struct opd_scan_sums *entries;
    uint32_t *slots; // number + 1; a power of two of them, at most half used
    size_t slot_count;
    uint32_t count, room;
    uint32_t next; // behind the one that was found last
};

// A sample file of the block that is being added.
struct sfile {
    uint32_t cells[OPD_SCAN_COLUMNS];
    uint64_t unit;
    uint32_t total; // its entry of the totals
    uint32_t base;  // the number of its cells that are keys
    uint8_t wanted, passes;
    uint8_t counts; // for a row
};

struct opd_scan {
    struct opd_scan_key keys[OPD_SCAN_KEYS];
    uint32_t key_count;
    struct opd_scan_test *tests;
    uint32_t test_count;
    int by_symbol, tests_symbol;
    uint32_t row_limit;

    uint32_t *events;
    uint32_t event_count;

    struct opd_intern *bases;     // the cells of rows but for the symbol
    struct opd_scan_table rows;   // (base, symbol)
    struct opd_scan_table series; // (bucket, place among the chosen)
    struct opd_scan_table totals; // (bucket, event)
    struct opd_scan_table all;    // the same, before the filter: numbered alike

    int choosing;         // 0: rows are being found; 1: those in `place` alone count
    uint32_t *place;      // by row: its place among the chosen + 1, or 0
    uint32_t rows_were;   // rows when they were chosen
    uint8_t *base_chosen; // by base, of as many as there were then
    uint32_t bases_were;

    struct sfile *sfiles;
    uint32_t sfile_room;
    uint64_t *groups; // decoded: four numbers a group, column by column
    size_t group_room;
    void *out_rows, *out_series, *out_totals;
};

// The number of (high, low), a new one where it is not known. 0, -E2BIG, -ENOMEM.
int opd_scan_number_of(struct opd_scan_table *table, uint32_t high, uint32_t low, uint32_t limit,
                       uint32_t *number);
// The number of (high, low), UINT32_MAX where it is not known.
uint32_t opd_scan_find(struct opd_scan_table *table, uint32_t high, uint32_t low);
void opd_scan_empty_table(struct opd_scan_table *table);

#endif
