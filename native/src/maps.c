// SPDX-License-Identifier: Apache-2.0
#include "maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct opd_maps *
opd_maps_share(struct opd_maps *maps)
{
    if (maps != NULL)
        maps->references++;
    return maps;
}

void
opd_maps_drop(struct opd_maps *maps)
{
    if (maps != NULL && --maps->references == 0)
        free(maps);
}

uint64_t
opd_maps_version(const struct opd_maps *maps)
{
    return maps == NULL ? 0 : maps->version;
}

// Index of the first mapping that ends after `address`.
static uint32_t
first_after(const struct opd_maps *maps, uint64_t address)
{
    uint32_t low = 0, high = maps->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (maps->items[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct opd_mapping *
opd_maps_find(const struct opd_maps *maps, uint64_t address)
{
    if (maps == NULL)
        return NULL;
    uint32_t i = first_after(maps, address);
    if (i < maps->count && maps->items[i].start <= address)
        return &maps->items[i];
    return NULL;
}

// An array of its own with room for `extra` more items.
static int
make_private(struct opd_maps **link, uint32_t extra)
{
    struct opd_maps *maps = *link;
    uint32_t need = (maps ? maps->count : 0) + extra;
    if (maps != NULL && maps->references == 1 && need <= maps->capacity)
        return 0;
    uint32_t capacity = 16;
    while (capacity < need)
        capacity += capacity / 2;
    size_t bytes = sizeof *maps + capacity * sizeof maps->items[0];
    if (maps != NULL && maps->references == 1) {
        maps = realloc(maps, bytes);
        if (maps == NULL)
            return -ENOMEM;
    } else {
        struct opd_maps *copy = malloc(bytes);
        if (copy == NULL)
            return -ENOMEM;
        copy->references = 1;
        copy->count = maps ? maps->count : 0;
        copy->version = maps ? maps->version : 0;
        if (maps != NULL)
            memcpy(copy->items, maps->items, maps->count * sizeof maps->items[0]);
        opd_maps_drop(maps);
        maps = copy;
    }
    maps->capacity = capacity;
    *link = maps;
    return 0;
}

static void
replace(struct opd_maps *maps, uint32_t from, uint32_t to, const struct opd_mapping *with,
        uint32_t count)
{
    memmove(&maps->items[from + count], &maps->items[to],
            (maps->count - to) * sizeof maps->items[0]);
    memcpy(&maps->items[from], with, count * sizeof *with);
    maps->count = maps->count - (to - from) + count;
}

static int
put_over(struct opd_maps **link, const struct opd_mapping *mapping, uint32_t limit,
         uint64_t version)
{
    struct opd_maps *maps = *link;
    uint32_t from = maps ? first_after(maps, mapping->start) : 0;
    uint32_t to = from;
    struct opd_mapping pieces[3];
    uint32_t count = 0;

    while (maps != NULL && to < maps->count && maps->items[to].start < mapping->end)
        to++;
    if (to > from) {
        const struct opd_mapping *first = &maps->items[from];
        const struct opd_mapping *last = &maps->items[to - 1];
        if (to == from + 1 && memcmp(first, mapping, sizeof *first) == 0)
            return 0; // the same again
        if (first->start < mapping->start) {
            pieces[count] = *first;
            pieces[count++].end = mapping->start;
        }
        pieces[count++] = *mapping;
        if (last->end > mapping->end) {
            pieces[count] = *last;
            pieces[count].offset += mapping->end - last->start;
            pieces[count++].start = mapping->end;
        }
    } else {
        pieces[count++] = *mapping;
    }
    uint32_t now = maps ? maps->count : 0;
    if (now - (to - from) + count > limit && count > to - from)
        return -ENOSPC;
    int rc = make_private(link, count);
    if (rc != 0)
        return rc;
    replace(*link, from, to, pieces, count);
    (*link)->version = version;
    return 1;
}

int
opd_maps_put(struct opd_maps **link, const struct opd_mapping *mapping, bool gaps, uint32_t limit,
             uint64_t version)
{
    if (mapping->end <= mapping->start)
        return 0;
    if (!gaps)
        return put_over(link, mapping, limit, version);

    int changed = 0;
    uint64_t at = mapping->start;
    while (at < mapping->end) {
        const struct opd_maps *maps = *link;
        uint32_t i = maps ? first_after(maps, at) : 0;
        uint64_t until = mapping->end;
        if (maps != NULL && i < maps->count) {
            if (maps->items[i].start <= at) {
                at = maps->items[i].end;
                continue;
            }
            if (maps->items[i].start < until)
                until = maps->items[i].start;
        }
        struct opd_mapping piece = *mapping;
        piece.start = at;
        piece.end = until;
        piece.offset = mapping->offset + (at - mapping->start);
        int rc = put_over(link, &piece, limit, version);
        if (rc < 0)
            return rc;
        changed |= rc;
        at = until;
    }
    return changed;
}
