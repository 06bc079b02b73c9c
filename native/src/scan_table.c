// SPDX-License-Identifier: Apache-2.0
#include "scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 1024

static size_t
place_of(const struct opd_scan_table *table, uint64_t key)
{
    unsigned __int128 product =
        (unsigned __int128)(key ^ UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    return ((uint64_t)product ^ (uint64_t)(product >> 64)) & (table->slot_count - 1);
}

static int
grow(struct opd_scan_table *table)
{
    size_t slot_count = table->slot_count > 0 ? table->slot_count * 2 : 2 * FIRST_ROOM;
    uint32_t room = (uint32_t)(slot_count / 2);
    struct opd_scan_sums *entries = realloc(table->entries, room * sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    table->entries = entries;
    uint32_t *slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
    table->room = room;
    for (uint32_t i = 0; i < table->count; i++) {
        size_t place = place_of(table, entries[i].key);
        while (slots[place] != 0)
            place = (place + 1) & (slot_count - 1);
        slots[place] = i + 1;
    }
    return 0;
}

uint32_t
opd_scan_find(struct opd_scan_table *table, uint32_t high, uint32_t low)
{
    if (table->slot_count == 0)
        return UINT32_MAX;
    uint64_t key = (uint64_t)high << 32 | low;
    // Blocks are sorted, so what follows is most often what followed before.
    uint32_t next = table->next;
    if (next < table->count && table->entries[next].key == key) {
        table->next = next + 1;
        return next;
    }
    size_t place = place_of(table, key);
    for (; table->slots[place] != 0; place = (place + 1) & (table->slot_count - 1)) {
        uint32_t number = table->slots[place] - 1;
        if (table->entries[number].key == key) {
            table->next = number + 1;
            return number;
        }
    }
    return UINT32_MAX;
}

int
opd_scan_number_of(struct opd_scan_table *table, uint32_t high, uint32_t low, uint32_t limit,
                   uint32_t *number)
{
    *number = opd_scan_find(table, high, low);
    if (*number != UINT32_MAX)
        return 0;
    if (table->count >= limit)
        return -E2BIG;
    if (table->count >= table->room && grow(table) != 0)
        return -ENOMEM;
    uint64_t key = (uint64_t)high << 32 | low;
    size_t place = place_of(table, key);
    while (table->slots[place] != 0)
        place = (place + 1) & (table->slot_count - 1);
    *number = table->count++;
    table->entries[*number] = (struct opd_scan_sums){.key = key};
    table->slots[place] = *number + 1;
    table->next = *number + 1;
    return 0;
}

void
opd_scan_empty_table(struct opd_scan_table *table)
{
    free(table->entries);
    free(table->slots);
    memset(table, 0, sizeof *table);
}
