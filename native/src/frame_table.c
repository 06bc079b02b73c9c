// SPDX-License-Identifier: Apache-2.0
#include "frame_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t
frame_hash(uint64_t address, uint32_t image, uint32_t caller)
{
    uint64_t mixed =
        (address ^ (uint64_t)image << 40 ^ (uint64_t)caller << 63) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(mixed ^ mixed >> 29 ^ mixed >> 47);
}

static int
frames_grow(struct opd_frame_table *table)
{
    uint32_t slot_count = table->slot_count == 0 ? 4096 : table->slot_count * 2;
    uint32_t room = slot_count / 2;
    if (slot_count > 1u << 30)
        return -ENOMEM;
    struct opd_condense_frame *frames = realloc(table->frames, room * sizeof *frames);
    if (frames == NULL)
        return -ENOMEM;
    table->frames = frames;
    struct opd_frame_slot *slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < table->count; i++) {
        const struct opd_condense_frame *frame = &frames[i];
        uint32_t at = frame_hash(frame->address, frame->image, frame->caller) & (slot_count - 1);
        while (slots[at].index_caller != 0)
            at = (at + 1) & (slot_count - 1);
        slots[at] = (struct opd_frame_slot){frame->address, frame->image,
                                            (i + 1) << 1 | (frame->caller & 1)};
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
    table->room = room;
    return 0;
}

uint32_t
opd_frame_table_put(struct opd_frame_table *table, uint32_t image, uint32_t caller,
                    uint64_t address)
{
    if (table->count == table->room && frames_grow(table) != 0)
        return UINT32_MAX;
    uint32_t at = frame_hash(address, image, caller) & (table->slot_count - 1);
    for (;; at = (at + 1) & (table->slot_count - 1)) {
        struct opd_frame_slot *slot = &table->slots[at];
        if (slot->index_caller == 0)
            break;
        if (slot->address == address && slot->image == image && (slot->index_caller & 1) == caller)
            return (slot->index_caller >> 1) - 1;
    }
    uint32_t index = table->count++;
    table->slots[at] = (struct opd_frame_slot){address, image, (index + 1) << 1 | caller};
    table->frames[index] =
        (struct opd_condense_frame){.image = image, .caller = caller, .address = address};
    return index;
}

void
opd_frame_table_free(struct opd_frame_table *table)
{
    free(table->slots);
    free(table->frames);
    memset(table, 0, sizeof *table);
}
