// SPDX-License-Identifier: Apache-2.0
// What the rooms of scan share: tables of numbers and the sums beside them.
#ifndef OPD_SRC_SCAN_H
#define OPD_SRC_SCAN_H

#include "opd/scan.h"

struct sums {
    uint64_t samples, weight;
};

// From a 64-bit key to a dense number: two 32-bit numbers make a key.
struct opd_scan_table {
    uint64_t *keys;  // by number
    uint32_t *slots; // number + 1; a power of two of them, at most half used
    size_t slot_count;
    uint32_t count, room;
};

struct total {
    struct sums filtered, all;
};

// A sample file of the block that is being added.
struct sfile {
    uint32_t cells[OPD_SCAN_COLUMNS];
    uint64_t unit;
    uint32_t total; // its entry of the totals
    uint32_t base;  // the number of its cells that are keys
    uint8_t wanted, passes;
};

struct opd_scan {
    struct opd_scan_key keys[OPD_SCAN_KEYS];
    uint32_t key_count;
    struct opd_scan_test *tests;
    uint32_t test_count;
    int by_symbol, tests_symbol, has_series;
    uint32_t row_limit;

    uint32_t *events;
    uint32_t event_count;

    struct opd_intern *bases;   // the cells of rows but for the symbol
    struct opd_scan_table rows; // (base, symbol)
    struct sums *row_sums;
    uint32_t row_room;
    struct opd_scan_table series; // (bucket, row)
    struct sums *series_sums;
    uint32_t series_room;
    struct opd_scan_table totals; // (bucket, event)
    struct total *total_sums;
    uint32_t total_room;

    struct sfile *sfiles;
    uint32_t sfile_room;
    void *out_rows, *out_series, *out_totals;
};

// The number of (high, low), a new one where it is not known. 0, -E2BIG, -ENOMEM.
int opd_scan_number_of(struct opd_scan_table *table, uint32_t high, uint32_t low, uint32_t limit,
                       uint32_t *number);
void opd_scan_free_table(struct opd_scan_table *table);
// Room for entry `index` in an array of `size` bytes each, new ones zero. NULL: no memory.
void *opd_scan_make_room(void *array, uint32_t index, uint32_t *room, size_t size);

#endif
