// SPDX-License-Identifier: Apache-2.0
// Private to the condenser.
#ifndef OPD_FRAME_TABLE_H
#define OPD_FRAME_TABLE_H

#include "opd/condense.h"

// Frames by their key, in one cache line each: a window asks for tens of
// thousands, and most of the time goes into waiting for memory.
struct opd_frame_slot {
    uint64_t address;
    uint32_t image;
    uint32_t index_caller; // (index + 1) << 1 | caller; 0 = unused
};

struct opd_frame_table {
    struct opd_frame_slot *slots; // a power of two, at most half used
    struct opd_condense_frame *frames;
    uint32_t slot_count, count, room;
};

// The frame's index, known or new; UINT32_MAX without memory.
uint32_t opd_frame_table_put(struct opd_frame_table *table, uint32_t image, uint32_t caller,
                             uint64_t address);
void opd_frame_table_free(struct opd_frame_table *table); // and empties it

#endif
