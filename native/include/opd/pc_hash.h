// SPDX-License-Identifier: Apache-2.0
// Hits of a profile buffer that all CPUs share, counted in small tables that
// each CPU has for itself, so that the buffer sees one atomic addition for many
// hits. A CPU has a pair of open-addressed tables on its own node: it counts in
// one while a reader empties the other. Zero hits mark an unused slot.
//
// Each CPU has one adder at a time, which never waits and does no atomic
// read-modify-write but on the buffer; readers exclude each other. To flip, a
// reader changes which table each CPU counts in and waits until those that are
// in the middle of a hit are through.
// Where a hit of slot s of the buffer is counted: a table is G groups of
// min(ways, 8) slots. Looked through, each from its front, are `ways` slots: group
// s mod G first, then by steps of 2 * (s div G) + 1 groups, modulo G. It goes to
// the slot that counts s already, or to the first unused one.
//
// Exact: hits added = hits in the buffer after a flush (each word modulo 2^32,
// and `wraps` counts when one went round).
#ifndef OPD_PC_HASH_H
#define OPD_PC_HASH_H

#include <stddef.h>
#include <stdint.h>

// Of a line of the cache: looked through together.
#define OPD_PC_GROUP 8u
#define OPD_PC_SLOTS_MOST (1u << 20)
#define OPD_PC_CPUS_MOST 8192u

// What is done with a hit for which none of its `ways` slots is free.
enum opd_pc_policy {
    OPD_PC_FLUSH = 0, // the whole table goes to the buffer; the hit begins its first group
    OPD_PC_EVICT = 1, // one slot of its first group does, in turn, by the CPU's evictions
    OPD_PC_NONE = 2,  // the hit itself does
};

struct opd_pc_shape {
    uint32_t slots; // of one table, a power of two, 8 bytes each; 1 to OPD_PC_SLOTS_MOST
    uint32_t ways;  // slots that a hit may be in, a power of two up to `slots`
    uint32_t policy;
};

struct opd_pc_options {
    struct opd_pc_shape shape;
    const int32_t *nodes; // of each CPU, for its tables' memory, -1 any; NULL: any
    uint32_t cpus;        // CPUs 0 to cpus - 1
    uint64_t length;      // slots of the buffer, below 2^32
    void *buffer;         // `length` words (_Atomic uint32_t) of the caller's; NULL: its own
};

struct opd_pc_hash;

// Memory of the tables of `cpus` CPUs and of a buffer of `length` slots, were all of it
// touched. `slots` as in a shape.
uint64_t opd_pc_hash_bytes(uint32_t slots, uint32_t cpus, uint64_t length);

// NULL with errno: EINVAL for a shape or size that cannot be, ENOMEM. Memory
// is touched when it is first counted in.
struct opd_pc_hash *opd_pc_hash_create(const struct opd_pc_options *options);
void opd_pc_hash_destroy(struct opd_pc_hash *hash);

uint64_t opd_pc_hash_length(const struct opd_pc_hash *hash);
uint32_t opd_pc_hash_cpus(const struct opd_pc_hash *hash);

// Counts one hit of each of `count` slots of the buffer (all below its length).
// One thread at a time a CPU. A CPU beyond those made is the caller's mistake.
void opd_pc_hash_add(struct opd_pc_hash *hash, uint32_t cpu, const uint32_t *slots, size_t count);

// Readers, on any threads but an adder in the middle of a hit; they take turns.
// All that was added before the call is in the buffer after it.
void opd_pc_hash_flush(struct opd_pc_hash *hash);
// The same of one CPU, one that went offline; it may come again.
void opd_pc_hash_flush_cpu(struct opd_pc_hash *hash, uint32_t cpu);
// Flushes, then writes the slots that have hits, in order, at most `room`;
// returns how many have any.
size_t opd_pc_hash_read(struct opd_pc_hash *hash, uint32_t *slots, uint32_t *hits, size_t room);
// Flushes, then empties the buffer. Hits that come meanwhile may stay in it.
void opd_pc_hash_reset(struct opd_pc_hash *hash);

struct opd_pc_stats {
    uint64_t hits;           // added
    uint64_t shared_updates; // atomic additions to the buffer: one for each used slot flushed
    uint64_t flushes;        // of a whole table for want of room
    uint64_t flips;          // by readers; of one CPU those when it had hits since its last
    uint64_t evictions;      // slots that gave way to others
    uint64_t wraps;          // words of the buffer that went past 2^32
    uint64_t probe_max;      // most slots looked at for a hit, `ways` when none was free
    uint64_t bytes;          // of tables that were counted in
    double ns_per_hit;       // mean of a hit in 61, 0 before the first
    double flip_ns;          // mean of a flip with its flush
};
// Of all CPUs, or of one (`cpu` below the number made); any thread.
void opd_pc_hash_stats(const struct opd_pc_hash *hash, struct opd_pc_stats *stats);
void opd_pc_hash_stats_cpu(const struct opd_pc_hash *hash, uint32_t cpu,
                           struct opd_pc_stats *stats);

#endif
