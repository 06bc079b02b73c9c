// SPDX-License-Identifier: Apache-2.0
// The ways that are measured: none of them loses a hit.
#include <stdlib.h>
#include <string.h>

#include "bench_profile_hash.h"
#include "opd/pc_hash.h"
#include "opd/profile_hash.h"

// ---- shared: every hit is an atomic addition to the buffer

static void *
shared_create(const struct shape *shape, struct buffer *buffer)
{
    return malloc(1);
}

static void
shared_add(void *table, struct buffer *buffer, struct counter *counter, const uint32_t *slots,
           size_t count)
{
    for (size_t i = 0; i < count; i++)
        update(buffer, counter, slots[i], 1);
}

static void
shared_flush(void *table, struct buffer *buffer, struct counter *counter)
{
}

static size_t
shared_bytes(const void *table)
{
    return 0;
}

// ---- per-cpu: a whole buffer a CPU, added up when somebody reads

struct full {
    size_t count;
    uint32_t hits[];
};

static void *
full_create(const struct shape *shape, struct buffer *buffer)
{
    struct full *full = calloc(1, sizeof *full + shape->slots * sizeof *full->hits);
    if (full != NULL)
        full->count = shape->slots;
    return full;
}

static void
full_add(void *table, struct buffer *buffer, struct counter *counter, const uint32_t *slots,
         size_t count)
{
    struct full *full = table;
    for (size_t i = 0; i < count; i++)
        full->hits[slots[i]]++;
}

static void
full_flush(void *table, struct buffer *buffer, struct counter *counter)
{
    struct full *full = table;
    for (size_t i = 0; i < full->count; i++)
        if (full->hits[i] != 0) {
            update(buffer, counter, (uint32_t)i, full->hits[i]);
            full->hits[i] = 0;
        }
}

static size_t
full_bytes(const void *table)
{
    return ((const struct full *)table)->count * sizeof(uint32_t);
}

// ---- opd: the daemon's own table, whose victims stay with the CPU

struct own {
    struct opd_hash_pair *pair;
    struct opd_hash_entry *entries;
    size_t room;
};

static void
own_destroy(void *table)
{
    struct own *own = table;
    opd_hash_pair_destroy(own->pair);
    free(own->entries);
    free(own);
}

static void *
own_create(const struct shape *shape, struct buffer *buffer)
{
    struct own *own = calloc(1, sizeof *own);
    if (own == NULL)
        return NULL;
    own->pair = opd_hash_pair_create((uint32_t)(shape->bytes / 64), 1u << 26);
    if (own->pair == NULL) {
        own_destroy(own);
        return NULL;
    }
    return own;
}

static void
own_add(void *table, struct buffer *buffer, struct counter *counter, const uint32_t *slots,
        size_t count)
{
    struct opd_profile_hash *hash = opd_hash_pair_active(((struct own *)table)->pair);
    for (size_t i = 0; i < count; i++)
        if (opd_profile_hash_add(hash, 0, slots[i], 1) != 0)
            update(buffer, counter, slots[i], 1);
}

static void
own_flush(void *table, struct buffer *buffer, struct counter *counter)
{
    struct own *own = table;
    struct opd_profile_hash *hash = opd_hash_pair_active(own->pair);
    const size_t bound = opd_profile_hash_bound(hash);
    if (bound > own->room) {
        free(own->entries);
        own->entries = malloc(bound * sizeof *own->entries);
        if (own->entries == NULL)
            abort();
        own->room = bound;
    }
    const size_t taken = opd_profile_hash_take(hash, own->entries);
    for (size_t i = 0; i < taken; i++)
        update(buffer, counter, own->entries[i].stack, (uint32_t)own->entries[i].hits);
}

static size_t
own_bytes(const void *table)
{
    struct opd_profile_hash_stats stats;
    opd_hash_pair_stats(((const struct own *)table)->pair, &stats);
    return stats.bytes;
}

// ---- flush, evict: the tables of the feature profile-hash

static void *
pc_create(const struct shape *shape, struct buffer *buffer, uint32_t policy, uint32_t ways)
{
    const struct opd_pc_options options = {
        .shape = {.slots = (uint32_t)(shape->bytes / 8), .ways = ways, .policy = policy},
        .cpus = 1,
        .length = buffer->count,
        .buffer = (void *)buffer->hits,
    };
    return opd_pc_hash_create(&options);
}

// As the seed did: groups of eight, looked at in turn until the table was gone through.
static void *
flush_create(const struct shape *shape, struct buffer *buffer)
{
    return pc_create(shape, buffer, OPD_PC_FLUSH, (uint32_t)(shape->bytes / 8));
}

static void *
flush8_create(const struct shape *shape, struct buffer *buffer)
{
    return pc_create(shape, buffer, OPD_PC_FLUSH, 8);
}

// As DCPI did: one bucket of four.
static void *
evict4_create(const struct shape *shape, struct buffer *buffer)
{
    return pc_create(shape, buffer, OPD_PC_EVICT, 4);
}

static void *
evict8_create(const struct shape *shape, struct buffer *buffer)
{
    return pc_create(shape, buffer, OPD_PC_EVICT, 8);
}

static void *
evict64_create(const struct shape *shape, struct buffer *buffer)
{
    return pc_create(shape, buffer, OPD_PC_EVICT, 64);
}

static void
pc_destroy(void *table)
{
    opd_pc_hash_destroy(table);
}

static void
pc_add(void *table, struct buffer *buffer, struct counter *counter, const uint32_t *slots,
       size_t count)
{
    opd_pc_hash_add(table, 0, slots, count);
}

static void
pc_flush(void *table, struct buffer *buffer, struct counter *counter)
{
    struct opd_pc_stats stats;
    opd_pc_hash_flush(table);
    opd_pc_hash_stats(table, &stats);
    counter->updates = stats.shared_updates;
}

static size_t
pc_bytes(const void *table)
{
    struct opd_pc_stats stats;
    opd_pc_hash_stats(table, &stats);
    return stats.bytes;
}

const struct policy policies[] = {
    {"shared", shared_create, free, shared_add, shared_flush, shared_bytes},
    {"per-cpu", full_create, free, full_add, full_flush, full_bytes},
    {"flush", flush_create, pc_destroy, pc_add, pc_flush, pc_bytes},
    {"flush-8", flush8_create, pc_destroy, pc_add, pc_flush, pc_bytes},
    {"evict-4", evict4_create, pc_destroy, pc_add, pc_flush, pc_bytes},
    {"evict-8", evict8_create, pc_destroy, pc_add, pc_flush, pc_bytes},
    {"evict-64", evict64_create, pc_destroy, pc_add, pc_flush, pc_bytes},
    {"opd", own_create, own_destroy, own_add, own_flush, own_bytes},
};
const unsigned policy_count = sizeof policies / sizeof *policies;
