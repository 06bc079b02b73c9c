// SPDX-License-Identifier: Apache-2.0
// Between dto.c (memory), dto_round.c (processes) and dto_loop.c (what is timed).
#ifndef OPD_DTO_PRIVATE_H
#define OPD_DTO_PRIVATE_H
#include <stddef.h>
#include <stdint.h>

#include "opd/dto.h"
#include "opd/ticks.h"

enum dto_state { DTO_BEGUN, DTO_CHECKED, DTO_MEASURED, DTO_WRONG };

// What a round's process leaves: mapped by both.
struct dto_result {
    uint32_t state; // enum dto_state; the last that it reached
    char reason[OPD_DTO_REASON];
    struct opd_dto_round round;
    uint64_t ticks[OPD_DTO_ARMS][OPD_DTO_ITERATIONS_MAX];
    uint8_t order[OPD_DTO_ITERATIONS_MAX];
};

struct dto_region {
    char *base;
    size_t bytes;
};

struct opd_dto {
    struct opd_dto_options options;
    struct dto_result *result;
    struct dto_region source, destination; // the same one with an overlap
    const char *from;                      // what the functions are given
    char *to;
    size_t page;        // bytes that pf drops at once
    size_t line;        // bytes a flush takes
    uint32_t is_tsc;    // 1: the CPU's own clock
    uint32_t can_flush; // enum dto_flush
    uint64_t turns;
    uint32_t seed;
    double ticks_per_ns;
};

enum dto_flush { DTO_FLUSH_NONE, DTO_FLUSH_CLFLUSH, DTO_FLUSH_CLFLUSHOPT, DTO_FLUSH_CIVAC };

// Writes the reason, with strerror(error) behind it unless that is 0; -error,
// or -EIO.
__attribute__((format(printf, 3, 4))) int dto_fail(char *reason, int error, const char *format,
                                                   ...);

// The whole of a round's process: fills the result. Only after fork.
void dto_loop_run(struct opd_dto *dto, uint32_t iterations, uint32_t check);

// xorshift32: never 0 from a state that is not.
static inline uint32_t
dto_draw(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}
#endif
