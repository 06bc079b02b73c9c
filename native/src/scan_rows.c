// SPDX-License-Identifier: Apache-2.0
#include "scan.h"

#include <errno.h>
#include <stdlib.h>

#include "opd/intern.h"

struct heavy {
    uint64_t weight;
    uint32_t row;
};

static int
heavier(const void *one, const void *other)
{
    const struct heavy *a = one, *b = other;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

int
opd_scan_rows(struct opd_scan *scan, uint32_t limit, struct opd_scan_rows *rows)
{
    uint32_t count = scan->rows.count, keys = scan->key_count, length;
    struct heavy *order = malloc(count * sizeof *order + 1);
    if (order == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        order[i] = (struct heavy){scan->row_sums[i].weight, i};
    qsort(order, count, sizeof *order, heavier);
    uint32_t taken = limit > 0 && limit < count ? limit : count;
    while (taken > 0 && taken < count && order[taken].weight == order[taken - 1].weight)
        taken++;

    free(scan->out_rows);
    uint64_t *samples = scan->out_rows = malloc(taken * (2 * 8 + 4 + 4 * (size_t)keys) + 1);
    if (samples == NULL) {
        free(order);
        return -ENOMEM;
    }
    uint64_t *weight = samples + taken;
    uint32_t *number = (uint32_t *)(weight + taken), *cells = number + taken;
    for (uint32_t i = 0; i < taken; i++) {
        uint32_t row = order[i].row;
        uint64_t key = scan->rows.keys[row];
        const uint32_t *base = opd_intern_get(scan->bases, (uint32_t)(key >> 32), &length);
        for (uint32_t j = 0; j < keys; j++)
            cells[(size_t)i * keys + j] =
                scan->keys[j].column == OPD_SCAN_SYMBOL ? (uint32_t)key : base[j];
        number[i] = row;
        samples[i] = scan->row_sums[row].samples;
        weight[i] = scan->row_sums[row].weight;
    }
    free(order);
    *rows = (struct opd_scan_rows){taken, cells, number, samples, weight};
    return 0;
}

struct entry {
    uint32_t bucket, row, entry;
};

static int
earlier(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

int
opd_scan_series(struct opd_scan *scan, const uint32_t *numbers, uint32_t count,
                struct opd_scan_series *series)
{
    uint32_t *place = calloc(scan->rows.count + 1, sizeof *place); // + 1; 0: not asked for
    struct entry *taken = malloc(scan->series.count * sizeof *taken + 1);
    uint32_t entries = 0;
    if (place == NULL || taken == NULL) {
        free(place);
        free(taken);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        if (numbers[i] < scan->rows.count)
            place[numbers[i]] = i + 1;
    for (uint32_t i = 0; i < scan->series.count; i++) {
        uint64_t key = scan->series.keys[i];
        uint32_t row = place[(uint32_t)key];
        if (row > 0)
            taken[entries++] = (struct entry){(uint32_t)(key >> 32), row - 1, i};
    }
    qsort(taken, entries, sizeof *taken, earlier);
    free(place);
    free(scan->out_series);
    uint64_t *samples = scan->out_series = malloc((size_t)entries * (2 * 8 + 2 * 4) + 1);
    if (samples == NULL) {
        free(taken);
        return -ENOMEM;
    }
    uint64_t *weight = samples + entries;
    uint32_t *bucket = (uint32_t *)(weight + entries), *row = bucket + entries;
    for (uint32_t i = 0; i < entries; i++) {
        bucket[i] = taken[i].bucket;
        row[i] = taken[i].row;
        samples[i] = scan->series_sums[taken[i].entry].samples;
        weight[i] = scan->series_sums[taken[i].entry].weight;
    }
    free(taken);
    *series = (struct opd_scan_series){entries, bucket, row, samples, weight};
    return 0;
}

int
opd_scan_totals(struct opd_scan *scan, struct opd_scan_totals *totals)
{
    uint32_t entries = scan->totals.count;
    free(scan->out_totals);
    uint64_t *samples = scan->out_totals = malloc((size_t)entries * (4 * 8 + 2 * 4) + 1);
    if (samples == NULL)
        return -ENOMEM;
    uint64_t *weight = samples + entries, *all_samples = weight + entries;
    uint64_t *all_weight = all_samples + entries;
    uint32_t *bucket = (uint32_t *)(all_weight + entries), *event = bucket + entries;
    for (uint32_t i = 0; i < entries; i++) {
        const struct total *total = &scan->total_sums[i];
        bucket[i] = (uint32_t)(scan->totals.keys[i] >> 32);
        event[i] = (uint32_t)scan->totals.keys[i];
        samples[i] = total->filtered.samples;
        weight[i] = total->filtered.weight;
        all_samples[i] = total->all.samples;
        all_weight[i] = total->all.weight;
    }
    *totals =
        (struct opd_scan_totals){entries, bucket, event, samples, weight, all_samples, all_weight};
    return 0;
}
