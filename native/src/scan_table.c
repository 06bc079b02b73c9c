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
grow_table(struct opd_scan_table *table)
{
    size_t slot_count = table->slot_count > 0 ? table->slot_count * 2 : 2 * FIRST_ROOM;
    uint32_t room = (uint32_t)(slot_count / 2);
    uint64_t *keys = realloc(table->keys, room * sizeof *keys);
    if (keys == NULL)
        return -ENOMEM;
    table->keys = keys;
    uint32_t *slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
    table->room = room;
    for (uint32_t i = 0; i < table->count; i++) {
        size_t place = place_of(table, table->keys[i]);
        while (slots[place] != 0)
            place = (place + 1) & (slot_count - 1);
        slots[place] = i + 1;
    }
    return 0;
}

int
opd_scan_number_of(struct opd_scan_table *table, uint32_t high, uint32_t low, uint32_t limit,
                   uint32_t *number)
{
    uint64_t key = (uint64_t)high << 32 | low;
    size_t place = 0;
    if (table->slot_count > 0) {
        place = place_of(table, key);
        for (; table->slots[place] != 0; place = (place + 1) & (table->slot_count - 1)) {
            *number = table->slots[place] - 1;
            if (table->keys[*number] == key)
                return 0;
        }
    }
    if (table->count >= limit)
        return -E2BIG;
    if (table->count >= table->room) {
        if (grow_table(table) != 0)
            return -ENOMEM;
        place = place_of(table, key);
        while (table->slots[place] != 0)
            place = (place + 1) & (table->slot_count - 1);
    }
    *number = table->count++;
    table->keys[*number] = key;
    table->slots[place] = *number + 1;
    return 0;
}

void
opd_scan_free_table(struct opd_scan_table *table)
{
    free(table->keys);
    free(table->slots);
}

void *
opd_scan_make_room(void *array, uint32_t index, uint32_t *room, size_t size)
{
    if (index < *room)
        return array;
    size_t more = *room < FIRST_ROOM ? FIRST_ROOM : (size_t)*room * 2;
    while (more <= index)
        more *= 2;
    char *grown = realloc(array, more * size);
    if (grown == NULL)
        return NULL;
    memset(grown + *room * size, 0, (more - *room) * size);
    *room = (uint32_t)more;
    return grown;
}
