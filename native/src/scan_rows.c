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

// The weight of the `limit`-th heaviest row: the least of a heap of that many.
static int
least_weight(const struct opd_scan *scan, uint32_t limit, uint64_t *least)
{
    uint64_t *heap = malloc(limit * sizeof *heap);
    if (heap == NULL)
        return -ENOMEM;
    uint32_t size = 0;
    for (uint32_t i = 0; i < scan->rows.count; i++) {
        uint64_t weight = scan->rows.entries[i].weight;
        uint32_t at;
        if (size < limit) {
            for (at = size++; at > 0 && heap[(at - 1) / 2] > weight; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
        } else if (weight > heap[0]) {
            uint32_t child;
            for (at = 0; (child = 2 * at + 1) < size; at = child) {
                child += child + 1 < size && heap[child + 1] < heap[child];
                if (heap[child] >= weight)
                    break;
                heap[at] = heap[child];
            }
        } else {
            continue;
        }
        heap[at] = weight;
    }
    *least = heap[0];
    free(heap);
    return 0;
}

int
opd_scan_rows(struct opd_scan *scan, uint32_t limit, struct opd_scan_rows *rows)
{
    uint32_t count = scan->rows.count, keys = scan->key_count, length, taken = 0;
    uint64_t least = 0;
    if (limit > 0 && limit < count && least_weight(scan, limit, &least) != 0)
        return -ENOMEM;
    struct heavy *order = malloc(count * sizeof *order + 1);
    if (order == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        if (scan->rows.entries[i].weight >= least)
            order[taken++] = (struct heavy){scan->rows.entries[i].weight, i};
    qsort(order, taken, sizeof *order, heavier);

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
        uint64_t key = scan->rows.entries[row].key;
        const uint32_t *base = opd_intern_get(scan->bases, (uint32_t)(key >> 32), &length);
        for (uint32_t j = 0; j < keys; j++)
            cells[(size_t)i * keys + j] =
                scan->keys[j].column == OPD_SCAN_SYMBOL ? (uint32_t)key : base[j];
        number[i] = row;
        samples[i] = scan->rows.entries[row].samples;
        weight[i] = scan->rows.entries[row].weight;
    }
    free(order);
    *rows = (struct opd_scan_rows){taken, cells, number, samples, weight};
    return 0;
}

int
opd_scan_choose(struct opd_scan *scan, const uint32_t *numbers, uint32_t count)
{
    uint32_t bases = opd_intern_count(scan->bases);
    uint32_t *place = calloc((size_t)scan->rows.count + 1, sizeof *place);
    uint8_t *base_chosen = calloc((size_t)bases + 1, 1);
    if (place == NULL || base_chosen == NULL) {
        free(place);
        free(base_chosen);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] >= scan->rows.count)
            continue;
        place[numbers[i]] = i + 1;
        base_chosen[scan->rows.entries[numbers[i]].key >> 32] = 1;
    }
    free(scan->base_chosen);
    scan->base_chosen = base_chosen;
    scan->bases_were = bases;
    free(scan->place);
    scan->place = place;
    scan->rows_were = scan->rows.count;
    scan->choosing = 1;
    opd_scan_empty_table(&scan->series);
    opd_scan_empty_table(&scan->totals);
    opd_scan_empty_table(&scan->all);
    return 0;
}

int
opd_scan_series(struct opd_scan *scan, struct opd_scan_series *series)
{
    uint32_t entries = scan->series.count;
    free(scan->out_series);
    uint64_t *samples = scan->out_series = malloc((size_t)entries * (2 * 8 + 2 * 4) + 1);
    if (samples == NULL)
        return -ENOMEM;
    uint64_t *weight = samples + entries;
    uint32_t *bucket = (uint32_t *)(weight + entries), *row = bucket + entries;
    for (uint32_t i = 0; i < entries; i++) {
        const struct opd_scan_sums *sums = &scan->series.entries[i];
        bucket[i] = (uint32_t)(sums->key >> 32);
        row[i] = (uint32_t)sums->key;
        samples[i] = sums->samples;
        weight[i] = sums->weight;
    }
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
        const struct opd_scan_sums *good = &scan->totals.entries[i], *all = &scan->all.entries[i];
        bucket[i] = (uint32_t)(good->key >> 32);
        event[i] = (uint32_t)good->key;
        samples[i] = good->samples;
        weight[i] = good->weight;
        all_samples[i] = all->samples;
        all_weight[i] = all->weight;
    }
    *totals =
        (struct opd_scan_totals){entries, bucket, event, samples, weight, all_samples, all_weight};
    return 0;
}
