// SPDX-License-Identifier: Apache-2.0
// The worker's side of a window: which of its frames and stacks the store has
// numbered already, which are new, and its rows summed and sorted as the
// store's blocks keep them (opd.store.blocks). Two calls a window, between
// which Python names the new frames. Single threaded.
#ifndef OPD_CONDENSE_H
#define OPD_CONDENSE_H

#include <stddef.h>
#include <stdint.h>

// A window's columns (opd.sampling.window), as they came: checked here.
struct opd_condense_window {
    uint32_t rows, sfiles, stacks, frames;
    const uint32_t *row_sfile, *row_stack;
    const uint64_t *row_hits, *row_weight;
    const uint16_t *sfile_event;
    const uint32_t *stack_start;
    const uint8_t *stack_flags;
    const uint32_t *frame_image;
    const uint64_t *frame_address;
};

// A frame that has no number yet. `caller`: the address is a return address.
struct opd_condense_frame {
    uint32_t image, caller;
    uint64_t address;
};

// What Python says of it: its number in the store, the number of its name,
// and the kind of that name (0..2).
struct opd_condense_name {
    uint32_t number, name, kind;
};

struct opd_condensed {
    // New stacks in the order of their numbers, frames root first: flags,
    // number of frames, how many are those of the stack before, and the rest.
    uint32_t new_stacks, rest_count;
    uint32_t *new_flags, *new_length, *new_shared, *rest;
    // Rows summed by (sample file, symbol of the leaf), in that order.
    uint32_t groups;
    uint32_t *group_sfile, *group_symbol;
    uint64_t *group_hits, *group_excess;
    // Rows in order of their stack's number; step = that less the one before.
    uint32_t rows;
    uint32_t *row_sfile;
    uint64_t *row_step, *row_hits, *row_excess;
    // Least weight of one hit, by sample file (the same for all of an event).
    uint32_t sfiles;
    uint64_t *sfile_unit;
    uint64_t kind_hits[3]; // hits by the kind of their leaf's name
    uint32_t events;       // one more than the highest event of a row
    uint64_t *event_kinds; // the same for each event: three an event
    uint64_t hits;
};

struct opd_condenser;

// `frame_limit` and `stack_limit` bound what is remembered; past them
// everything is forgotten and numbered anew. NULL with errno ENOMEM.
struct opd_condenser *opd_condenser_create(uint32_t frame_limit, uint32_t stack_limit);
void opd_condenser_destroy(struct opd_condenser *condenser);
// What was numbered in a transaction that failed is not in the store.
void opd_condenser_forget(struct opd_condenser *condenser);

// Checks the window and finds its frames. *new_frames (the condenser's, valid
// until opd_condense_end) are sorted by (image, caller, address). 0, -EBADMSG
// when an index or length does not fit (*reason says which), -ENOMEM.
int opd_condense_begin(struct opd_condenser *condenser, const struct opd_condense_window *window,
                       const struct opd_condense_frame **new_frames, uint32_t *count,
                       const char **reason);

// `names` has one entry for each new frame; new stacks are numbered from
// `first_stack`; `no_name` names a stack without frames. *out stays valid
// until the next begin. 0, -EINVAL when no window was begun, -ENOMEM.
int opd_condense_end(struct opd_condenser *condenser, const struct opd_condense_name *names,
                     uint32_t first_stack, uint32_t no_name, const struct opd_condensed **out);

// Of the window that was ended last, for each of its stacks: its number in the
// store and the number of its leaf's name (`no_name` without frames). Both have
// room for all stacks. -EINVAL when no window was ended.
int opd_condense_stacks(const struct opd_condenser *condenser, uint32_t no_name, uint32_t *numbers,
                        uint32_t *symbols);

size_t opd_condenser_bytes(const struct opd_condenser *condenser);

// The planes of columns of unsigned numbers (opd.store.blocks.pack before
// compression): each column in its least width of 1, 2, 4, 8 bytes.
struct opd_column {
    const void *data;
    uint32_t width; // bytes of a number in `data`: 1, 2, 4 or 8
    uint32_t count;
};
// Bytes at most that packing takes.
size_t opd_pack_bound(const struct opd_column *columns, uint32_t count);
// Bytes written to `out`, which has room for the bound.
size_t opd_pack(const struct opd_column *columns, uint32_t count, uint8_t *out);

#endif
