// SPDX-License-Identifier: Apache-2.0
// From which size on the device pays: measured, and by how sure it is.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dsa_private.h"
#include "opd/ticks.h"

enum { SIZE_LEAST = 4096, WARM_UP = 3 };

uint32_t
opd_dsa_wins_needed(uint32_t pairs)
{
    if (pairs > OPD_DSA_PAIRS_MOST)
        pairs = OPD_DSA_PAIRS_MOST;
    double chance = 1; // of exactly `wins` heads
    for (uint32_t i = 0; i < pairs; i++)
        chance /= 2;
    double beyond = 0; // of more than `wins`
    for (uint32_t wins = pairs;; wins--) {
        beyond += chance;
        if (beyond > 0.01)
            return wins + 1;
        chance *= (double)wins / (pairs - wins + 1);
    }
}

struct operands {
    char *to, *from;
};

static uint64_t
time_of(const struct opd_dto_functions *f, uint32_t op, const struct operands *at, uint64_t bytes)
{
    uint64_t begin = opd_raw_ns();
    switch (op) {
    case OPD_DSA_COPY:
        f->copy(at->to, at->from, bytes);
        break;
    case OPD_DSA_MOVE:
        f->move(at->to, at->from, bytes);
        break;
    case OPD_DSA_SET:
        f->set(at->to, 0, bytes);
        break;
    default:
        f->compare(at->to, at->from, bytes);
    }
    return opd_raw_ns() - begin;
}

static int
by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double
median(uint64_t *values, uint32_t n)
{
    qsort(values, n, sizeof(*values), by_value);
    return (double)(values[n / 2] + values[(n - 1) / 2]) / 2;
}

static void
size_of(struct opd_dsa *dsa, uint32_t op, uint32_t index, const struct operands *at,
        uint64_t *state, struct opd_dsa_crossover *out)
{
    uint64_t device[OPD_DSA_PAIRS_MOST], cpu[OPD_DSA_PAIRS_MOST];
    uint64_t bytes = out->bytes[index];
    uint32_t wins = 0;
    if (op == OPD_DSA_CMP)
        memset(at->to, 0, bytes); // as the other: compared to the end
    for (uint32_t i = 0; i < WARM_UP; i++) {
        time_of(&dsa->functions, op, at, bytes);
        time_of(&dsa->fallback, op, at, bytes);
    }
    for (uint32_t i = 0; i < out->pairs; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        bool device_first = *state >> 33 & 1;
        if (device_first)
            device[i] = time_of(&dsa->functions, op, at, bytes);
        cpu[i] = time_of(&dsa->fallback, op, at, bytes);
        if (!device_first)
            device[i] = time_of(&dsa->functions, op, at, bytes);
        wins += device[i] < cpu[i];
    }
    out->wins[op][index] = wins;
    out->device_ns[op][index] = median(device, out->pairs);
    out->cpu_ns[op][index] = median(cpu, out->pairs);
}

int
opd_dsa_cross(struct opd_dsa *dsa, uint32_t ops, uint64_t most, uint32_t pairs,
              struct opd_dsa_crossover *out)
{
    if (!ops || ops >> OPD_DSA_OPS || most < SIZE_LEAST || !pairs || pairs > OPD_DSA_PAIRS_MOST)
        return -EINVAL;
    memset(out, 0, sizeof(*out));
    out->pairs = pairs;
    out->wins_needed = opd_dsa_wins_needed(pairs);
    for (uint64_t size = SIZE_LEAST; size <= most && out->sizes < OPD_DSA_SIZES_MOST; size *= 2)
        out->bytes[out->sizes++] = size;
    uint64_t room = out->bytes[out->sizes - 1];
    char *memory = mmap(NULL, 2 * room, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    struct operands at = {.to = memory, .from = memory + room};
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint32_t op = 0; op < OPD_DSA_OPS; op++) {
        if (!(ops >> op & 1))
            continue;
        dsa->least[op] = 0;
        for (uint32_t i = 0; i < out->sizes; i++)
            size_of(dsa, op, i, &at, &state, out);
        out->least[op] = UINT64_MAX;
        for (uint32_t i = out->sizes; i-- && out->wins[op][i] >= out->wins_needed;)
            out->least[op] = out->bytes[i];
        dsa->least[op] = out->least[op];
    }
    munmap(memory, 2 * room);
    return 0;
}
