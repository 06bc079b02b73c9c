// SPDX-License-Identifier: Apache-2.0
// What the adder's side (pc_hash.c) and the reader's (pc_hash_read.c) share.
#ifndef OPD_PC_HASH_PRIVATE_H
#define OPD_PC_HASH_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "opd/pc_hash.h"

struct opd_pc_slot {
    uint32_t slot; // of the buffer
    uint32_t hits; // 0: unused
};
_Static_assert(sizeof(struct opd_pc_slot) * OPD_PC_GROUP == 64, "a group is a line of the cache");

// One writer each: plain loads and stores that no reader sees torn.
typedef _Atomic uint64_t opd_pc_counter;

static inline void
opd_pc_count(opd_pc_counter *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline uint64_t
opd_pc_counted(const opd_pc_counter *counter)
{
    return atomic_load_explicit((opd_pc_counter *)counter, memory_order_relaxed);
}

// At the start of a CPU's memory, its two tables behind it.
struct opd_pc_cpu {
    // The adder's.
    _Alignas(64) opd_pc_counter turn; // odd while it counts
    opd_pc_counter hits, updates, flushes, evictions, wraps, probe_max;
    opd_pc_counter timed, ticks; // hits measured, and their ticks
    uint32_t victim;             // of the next eviction
    uint32_t until_timed;
    // The reader's.
    _Alignas(64) _Atomic uint32_t active; // which table is counted in
    opd_pc_counter reader_updates, reader_wraps, flips, flip_ns;
    uint64_t hits_read; // before the last flip
    bool flipping;
    _Alignas(64) struct opd_pc_slot slots[];
};

struct opd_pc_hash {
    struct opd_pc_shape shape;
    uint32_t group;       // slots looked through together
    uint32_t group_shift; // log2 of `group`
    uint32_t group_mask;  // number of groups - 1
    uint32_t home_shift;  // log2 of the number of groups
    uint32_t probes;      // groups that a hit may be in
    uint32_t cpus;
    bool asymmetric; // the reader makes the barrier for both (membarrier)
    _Atomic uint32_t *buffer;
    uint64_t length;
    bool own_buffer;
    size_t cpu_bytes; // of one CPU's memory
    char *memory;
    uint64_t empty_ticks; // of measuring nothing
    uint64_t since_ticks, since_ns;
    pthread_mutex_t reader;
    opd_pc_counter flips, flip_ns;
};

static inline struct opd_pc_cpu *
opd_pc_cpu(const struct opd_pc_hash *hash, uint32_t cpu)
{
    return (struct opd_pc_cpu *)(hash->memory + cpu * hash->cpu_bytes);
}

static inline uint32_t
opd_pc_active(const struct opd_pc_cpu *cpu)
{
    return atomic_load_explicit((_Atomic uint32_t *)&cpu->active, memory_order_relaxed);
}

static inline struct opd_pc_slot *
opd_pc_table(const struct opd_pc_hash *hash, struct opd_pc_cpu *cpu, uint32_t which)
{
    return cpu->slots + (size_t)which * hash->shape.slots;
}

// One atomic addition to the buffer.
static inline void
opd_pc_publish(const struct opd_pc_hash *hash, const struct opd_pc_slot *entry,
               opd_pc_counter *updates, opd_pc_counter *wraps)
{
    uint32_t before =
        atomic_fetch_add_explicit(&hash->buffer[entry->slot], entry->hits, memory_order_relaxed);
    opd_pc_count(updates, 1);
    if (before + entry->hits < before)
        opd_pc_count(wraps, 1);
}

// Empties a table into the buffer.
void opd_pc_publish_table(const struct opd_pc_hash *hash, struct opd_pc_slot *table,
                          opd_pc_counter *updates, opd_pc_counter *wraps);

#endif
