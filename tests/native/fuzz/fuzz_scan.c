// SPDX-License-Identifier: Apache-2.0
// Blocks of arbitrary bytes, summed with a filter of every kind and in two turns.
#include "opd/scan.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct opd_scan_key keys[] = {{.column = OPD_SCAN_PID}, {.column = OPD_SCAN_SYMBOL}};
static const uint8_t bits[] = {0x5a, 0xff};
static const struct opd_scan_test tests[] = {
    {.operation = OPD_SCAN_SET, .column = OPD_SCAN_SYMBOL, .bits = bits, .bit_count = 16},
    {.operation = OPD_SCAN_RANGE, .column = OPD_SCAN_CGROUP, .low = 1, .high = 9},
    {.operation = OPD_SCAN_OR},
    {.operation = OPD_SCAN_NOT},
};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t events[] = {0, OPD_SCAN_NO_EVENT, 1};
    struct opd_scan *scan = opd_scan_create(keys, 2, tests, size % 2 ? 4 : 0, 1000);
    uint8_t *block = malloc(size + 1); // exactly the bytes, so that a read past them shows
    if (scan == NULL || block == NULL || opd_scan_events(scan, events, 3) != 0)
        abort();
    memcpy(block, data, size);
    block = realloc(block, size > 0 ? size : 1);
    struct opd_scan_rows rows;
    struct opd_scan_series series;
    struct opd_scan_totals totals;
    for (uint32_t columns = 7; columns <= 10; columns++)
        opd_scan_add(scan, block, size, columns, 0);
    if (opd_scan_rows(scan, 10, &rows) != 0)
        abort();
    for (uint32_t i = 1; i < rows.rows; i++)
        if (rows.weight[i] > rows.weight[i - 1])
            abort();
    if (opd_scan_choose(scan, rows.number, rows.rows) != 0)
        abort();
    opd_scan_add(scan, block, size, 9, 3);
    if (opd_scan_series(scan, &series) != 0 || opd_scan_totals(scan, &totals) != 0)
        abort();
    for (uint32_t i = 0; i < series.entries; i++)
        if (series.bucket[i] != 3 || series.row[i] >= rows.rows)
            abort();
    free(block);
    opd_scan_destroy(scan);
    return 0;
}
