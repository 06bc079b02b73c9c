// SPDX-License-Identifier: Apache-2.0
// The profile hash: where a hit is counted. Buckets of four 16-byte slots,
// one cache line each, in front of an open-addressed overflow table that
// holds full 64-bit sums. One thread adds; the same thread swaps the pair
// and hands the full table on; a table is never shared while it is written.
#ifndef OPD_PROFILE_HASH_H
#define OPD_PROFILE_HASH_H

#include <stddef.h>
#include <stdint.h>

// 8 bytes of key, 24 bits of hits and 40 of weight; zero hits = unused.
struct opd_hash_slot {
    uint32_t sfile;
    uint32_t stack;
    uint64_t counts;
};
_Static_assert(sizeof(struct opd_hash_slot) == 16, "four slots fill one cache line");

// One finished entry, as handed on.
struct opd_hash_entry {
    uint32_t sfile;
    uint32_t stack;
    uint64_t hits;
    uint64_t weight;
};
_Static_assert(sizeof(struct opd_hash_entry) == 24, "packed columns are cut from these");

struct opd_profile_hash;

// `buckets` is a power of two; `limit` bounds the overflow table's entries.
// Returns NULL with errno set (EINVAL, ENOMEM).
struct opd_profile_hash *opd_profile_hash_create(uint32_t buckets, uint32_t limit);
void opd_profile_hash_destroy(struct opd_profile_hash *hash);

// Counts one hit of `weight`. The sample-file key carries the event. A slot
// that would overflow, or the victim of a full bucket, is carried to the
// overflow table; a weight beyond 40 bits goes there straight. Returns 0, or
// -ENOSPC when the overflow table is at its limit (or could not grow) and the
// hit (not any earlier one) was dropped and counted.
// Exact: over all keys, hits offered = hits taken + dropped; so are weights
// (modulo 2^64 for each key).
int opd_profile_hash_add(struct opd_profile_hash *hash, uint32_t sfile, uint32_t stack,
                         uint64_t weight);

// Fetches memory for an addition to come.
void opd_profile_hash_fetch(const struct opd_profile_hash *hash, uint32_t sfile, uint32_t stack);

// Entries at most that opd_profile_hash_take() will write now.
size_t opd_profile_hash_bound(const struct opd_profile_hash *hash);

// Writes every entry once (sums of slot and overflow), empties the table and
// gives back the memory that it had grown beyond what it held just now. Returns the
// number of entries. `entries` has room for opd_profile_hash_bound().
size_t opd_profile_hash_take(struct opd_profile_hash *hash, struct opd_hash_entry *entries);

struct opd_profile_hash_stats {
    uint64_t hits;      // offered since creation, kept or not
    uint64_t dropped;   // refused with -ENOSPC
    uint64_t evictions; // victims carried to the overflow table
    uint64_t carries;   // slots carried because a field would overflow
    uint64_t bytes;     // memory held now
};
void opd_profile_hash_stats(const struct opd_profile_hash *hash,
                            struct opd_profile_hash_stats *stats);

// Every call on a table but stats belongs to the thread that owns it: the adder
// for the active one, the reader for a finished one. Stats may be read by any
// thread while the table exists; each counter is right by itself.

// A pair, one per drain thread. The adder works on the active one; a reader
// asks for the swap and waits; the adder performs it between two samples (or
// while idle) by calling opd_hash_pair_poll(). No lock is on the add path:
// one relaxed load per poll. An adder that sleeps must be woken by the reader
// by other means: request with timeout 0, wake, request again with a timeout;
// the same way several pairs are asked at once and then collected.
//
// Companion tables (whatever is filled along with the hash, e.g. interners)
// change hands with it when the adder is done with them before the poll, since
// the reader may run as soon as the poll publishes:
//     if (opd_hash_pair_asked(pair)) {
//         companion ^= 1;             // from here on fill the other one
//         opd_hash_pair_poll(pair);   // returns 1: nobody takes a request back
//         hash = opd_hash_pair_active(pair);
//     }
// All that the adder wrote before the poll is visible to the reader after the
// request; all that the reader wrote to the tables that it gives back is
// visible to the adder after asked() or poll() returned 1. A poll that
// returned 1 is too late to touch the old companion or an index that the
// reader looks at.
struct opd_hash_pair;
// NULL with errno set (EINVAL, ENOMEM). Nobody may use it when it is destroyed.
struct opd_hash_pair *opd_hash_pair_create(uint32_t buckets, uint32_t limit);
void opd_hash_pair_destroy(struct opd_hash_pair *pair);
// Of both tables together, from any thread. (One table's counters are those of
// every other window.)
void opd_hash_pair_stats(const struct opd_hash_pair *pair, struct opd_profile_hash_stats *stats);
// Adder side.
struct opd_profile_hash *opd_hash_pair_active(struct opd_hash_pair *pair);
int opd_hash_pair_asked(struct opd_hash_pair *pair); // 1 when the next poll will swap
int opd_hash_pair_poll(struct opd_hash_pair *pair);  // 1 when it swapped
// Reader side: asks, waits until the adder swapped (timeout in ms, 0 = look
// once, < 0 = for ever; -ETIMEDOUT leaves the request standing, a later call
// picks it up), then owns the inactive table until the next request: that
// gives it back, with what it did not take still counted in it. -EBUSY when
// another reader waits.
int opd_hash_pair_request(struct opd_hash_pair *pair, int timeout_ms,
                          struct opd_profile_hash **finished);

#endif
