// SPDX-License-Identifier: Apache-2.0
// A way to count hits of a shared profile buffer, and what it is given.
#ifndef OPD_BENCH_PROFILE_HASH_H
#define OPD_BENCH_PROFILE_HASH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

// Shared by all CPUs.
struct buffer {
    _Atomic uint32_t *hits; // by slot
    size_t count;
};

// What one CPU did to the buffer.
struct counter {
    uint64_t updates; // atomic additions
};

struct result {
    uint64_t hits, updates;
    double cpu_ns;
    size_t bytes; // of the largest CPU's own tables, both of a pair
};

struct shape {
    size_t bytes; // of slots of one table, a power of two
    size_t slots; // of the buffer
};

// One CPU's tables. Its own thread alone calls these.
struct policy {
    const char *name;
    void *(*create)(const struct shape *shape, struct buffer *buffer); // NULL: no memory
    void (*destroy)(void *table);
    void (*add)(void *table, struct buffer *buffer, struct counter *counter, const uint32_t *slots,
                size_t count);
    void (*flush)(void *table, struct buffer *buffer, struct counter *counter);
    size_t (*bytes)(const void *table);
};

extern const struct policy policies[];
extern const unsigned policy_count;

static inline void
update(struct buffer *buffer, struct counter *counter, uint32_t slot, uint32_t hits)
{
    atomic_fetch_add_explicit(&buffer->hits[slot], hits, memory_order_relaxed);
    counter->updates++;
}

#endif
