// SPDX-License-Identifier: Apache-2.0
// The functional suite's own: one case, memory for it, and what is told of it to
// the process that outlives it.
#ifndef OPD_DTO_FUNCTIONAL_PRIVATE_H
#define OPD_DTO_FUNCTIONAL_PRIVATE_H
#include <stdatomic.h>
#include <stdbool.h>

#include "opd/dto_functional.h"

enum { DTO_SIZES_MOST = 64, DTO_GUARD = 4096, DTO_SLOTS = 128 };
#define DTO_LARGEST_MOST (1ull << 32)

// What the next case is, written before it is run: the last words of a process.
struct dto_slot {
    _Atomic uint32_t busy;
    int process;
    struct opd_dto_case one;
};

struct dto_told {
    _Atomic uint32_t first; // taken by who tells the first difference
    int error;              // errno of the suite itself
    struct opd_dto_functional result;
    struct dto_slot slots[DTO_SLOTS];
};

// Three times the same room: what is tried, what libc makes of it, what both begin
// with. Behind the first two is a page that may not be touched.
struct dto_arena {
    unsigned char *subject, *oracle, *pristine;
    uint64_t room;
};

int dto_arena_make(struct dto_arena *arena, uint64_t largest);
// Sizes to try, ascending; how many.
uint32_t dto_functional_sizes(const struct opd_dto_functional_options *options,
                              uint64_t sizes[DTO_SIZES_MOST]);
// Runs one case, counts it, tells it when it is wrong. True: right, or left out.
bool dto_functional_case(const struct opd_dto_functional_options *options, struct dto_told *told,
                         struct dto_arena *arena, const struct opd_dto_case *one);
// The cases of sizes, offsets, overlaps and edges. False: one was wrong.
bool dto_functional_table(const struct opd_dto_functional_options *options, struct dto_told *told,
                          struct dto_arena *arena, uint32_t part);
// `process` is gone, by `signal`; 0: it hung. What it was at is the difference.
void dto_told_gone(struct dto_told *told, int process, int signal);
#endif
