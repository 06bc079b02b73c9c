// SPDX-License-Identifier: Apache-2.0
#include "opd/profile_hash.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CACHE_LINE 64
#define WAYS 4
#define HIT_BITS 24
#define HITS_MAX ((UINT64_C(1) << HIT_BITS) - 1)
#define WEIGHT_MAX ((UINT64_C(1) << (64 - HIT_BITS)) - 1)
#define FIRST_CAPACITY 256

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// Open-addressed, power of two, linear probing; zero hits = unused. At least
// one place is always unused, so that a probe ends.
struct overflow {
    struct opd_hash_entry *entries;
    size_t capacity;
    size_t count;
};

struct opd_profile_hash {
    struct opd_hash_slot *slots;
    uint64_t mask; // buckets - 1
    uint32_t limit;
    uint32_t turn; // whose turn it is to leave a full bucket
    size_t used;   // slots in use
    struct overflow overflow;
    size_t first_capacity;
    // One writer; relaxed atomics let another thread look.
    _Atomic uint64_t hits, dropped, evictions, carries, bytes;
};

static inline void
count(_Atomic uint64_t *counter)
{
    // Not a locked addition: nobody else writes.
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static uint64_t
mix(uint32_t sfile, uint32_t stack)
{
    // Both numbers are dense and small: multiply, fold, multiply spreads every
    // bit of them over the upper half.
    uint64_t key = (uint64_t)sfile << 32 | stack;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    return key ^ key >> 32;
}

static struct opd_hash_entry *
overflow_place(const struct overflow *overflow, uint64_t mixed, uint32_t sfile, uint32_t stack)
{
    size_t mask = overflow->capacity - 1;
    // The buckets take the lower bits; taking others keeps the members of one
    // bucket apart here.
    size_t at = (mixed >> 20) & mask;
    for (;;) {
        struct opd_hash_entry *entry = &overflow->entries[at];
        if (entry->hits == 0 || (entry->sfile == sfile && entry->stack == stack))
            return entry;
        at = (at + 1) & mask;
    }
}

static struct opd_hash_entry *
overflow_find(const struct overflow *overflow, uint64_t mixed, uint32_t sfile, uint32_t stack)
{
    struct opd_hash_entry *entry = overflow_place(overflow, mixed, sfile, stack);
    return entry->hits != 0 ? entry : NULL;
}

static int
overflow_grow(struct overflow *overflow)
{
    struct overflow larger = {.capacity = overflow->capacity * 2, .count = overflow->count};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < overflow->capacity; i++) {
        const struct opd_hash_entry *entry = &overflow->entries[i];
        if (entry->hits != 0)
            *overflow_place(&larger, mix(entry->sfile, entry->stack), entry->sfile, entry->stack) =
                *entry;
    }
    free(overflow->entries);
    *overflow = larger;
    return 0;
}

static void
count_bytes(struct opd_profile_hash *hash)
{
    size_t bytes = sizeof *hash + ((size_t)hash->mask + 1) * WAYS * sizeof *hash->slots +
                   hash->overflow.capacity * sizeof *hash->overflow.entries;
    atomic_store_explicit(&hash->bytes, bytes, memory_order_relaxed);
}

// Adds the sums to the key's overflow entry, made if need be. False, and
// nothing changed, when it would need a new one and there is no room.
static int
overflow_add(struct opd_profile_hash *hash, uint64_t mixed, uint32_t sfile, uint32_t stack,
             uint64_t hits, uint64_t weight)
{
    struct overflow *overflow = &hash->overflow;
    struct opd_hash_entry *entry = overflow_place(overflow, mixed, sfile, stack);
    if (entry->hits == 0) {
        if (overflow->count >= hash->limit)
            return 0;
        if (overflow->count + 1 > overflow->capacity - overflow->capacity / 4) {
            // Without memory to grow it fills up, short of the last place.
            if (overflow_grow(overflow) == 0) {
                entry = overflow_place(overflow, mixed, sfile, stack);
                count_bytes(hash);
            } else if (overflow->count + 2 > overflow->capacity) {
                return 0;
            }
        }
        entry->sfile = sfile;
        entry->stack = stack;
        overflow->count++;
    }
    entry->hits += hits;
    entry->weight += weight;
    return 1;
}

struct opd_profile_hash *
opd_profile_hash_create(uint32_t buckets, uint32_t limit)
{
    if (buckets == 0 || (buckets & (buckets - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    struct opd_profile_hash *hash = calloc(1, sizeof *hash);
    if (hash == NULL)
        return NULL;
    hash->mask = buckets - 1;
    hash->limit = limit;
    hash->first_capacity = 4;
    while (hash->first_capacity < FIRST_CAPACITY &&
           hash->first_capacity - hash->first_capacity / 4 < limit)
        hash->first_capacity *= 2;
    size_t size = (size_t)buckets * WAYS * sizeof *hash->slots;
    hash->slots = aligned_alloc(CACHE_LINE, size);
    hash->overflow.capacity = hash->first_capacity;
    hash->overflow.entries = calloc(hash->first_capacity, sizeof *hash->overflow.entries);
    if (hash->slots == NULL || hash->overflow.entries == NULL) {
        opd_profile_hash_destroy(hash);
        errno = ENOMEM;
        return NULL;
    }
    memset(hash->slots, 0, size);
    count_bytes(hash);
    return hash;
}

void
opd_profile_hash_destroy(struct opd_profile_hash *hash)
{
    if (hash == NULL)
        return;
    free(hash->slots);
    free(hash->overflow.entries);
    free(hash);
}

static int
drop(struct opd_profile_hash *hash)
{
    count(&hash->dropped);
    return -ENOSPC;
}

// The slot cannot take the hit without a field running over.
static __attribute__((noinline)) int
carry(struct opd_profile_hash *hash, struct opd_hash_slot *slot, uint64_t mixed, uint64_t weight)
{
    if (!overflow_add(hash, mixed, slot->sfile, slot->stack, slot->counts & HITS_MAX,
                      slot->counts >> HIT_BITS))
        return drop(hash);
    count(&hash->carries);
    slot->counts = 1 | weight << HIT_BITS;
    return 0;
}

// The bucket is full of other keys.
static __attribute__((noinline)) int
evict(struct opd_profile_hash *hash, struct opd_hash_slot *bucket, uint64_t mixed, uint32_t sfile,
      uint32_t stack, uint64_t weight)
{
    // At the limit a victim that already has an overflow entry can still go.
    for (unsigned i = 0; i < WAYS; i++) {
        struct opd_hash_slot *victim = &bucket[(hash->turn + i) % WAYS];
        if (!overflow_add(hash, mix(victim->sfile, victim->stack), victim->sfile, victim->stack,
                          victim->counts & HITS_MAX, victim->counts >> HIT_BITS))
            continue;
        hash->turn++;
        count(&hash->evictions);
        *victim = (struct opd_hash_slot){sfile, stack, 1 | weight << HIT_BITS};
        return 0;
    }
    return overflow_add(hash, mixed, sfile, stack, 1, weight) ? 0 : drop(hash);
}

int
opd_profile_hash_add(struct opd_profile_hash *hash, uint32_t sfile, uint32_t stack, uint64_t weight)
{
    uint64_t mixed = mix(sfile, stack);
    struct opd_hash_slot *bucket = &hash->slots[(mixed & hash->mask) * WAYS];
    count(&hash->hits);
    if (UNLIKELY(weight > WEIGHT_MAX))
        return overflow_add(hash, mixed, sfile, stack, 1, weight) ? 0 : drop(hash);
    // Slots fill from the front and only take() empties them: the first
    // unused one ends the search.
    for (unsigned i = 0; i < WAYS; i++) {
        struct opd_hash_slot *slot = &bucket[i];
        uint64_t counts = slot->counts;
        if (counts == 0) {
            *slot = (struct opd_hash_slot){sfile, stack, 1 | weight << HIT_BITS};
            hash->used++;
            return 0;
        }
        if (slot->stack != stack || slot->sfile != sfile)
            continue;
        if (UNLIKELY((counts & HITS_MAX) == HITS_MAX || weight > WEIGHT_MAX - (counts >> HIT_BITS)))
            return carry(hash, slot, mixed, weight);
        slot->counts = counts + (1 | weight << HIT_BITS);
        return 0;
    }
    return evict(hash, bucket, mixed, sfile, stack, weight);
}

void
opd_profile_hash_fetch(const struct opd_profile_hash *hash, uint32_t sfile, uint32_t stack)
{
    __builtin_prefetch(&hash->slots[(mix(sfile, stack) & hash->mask) * WAYS], 1);
}

size_t
opd_profile_hash_bound(const struct opd_profile_hash *hash)
{
    return hash->used + hash->overflow.count;
}

size_t
opd_profile_hash_take(struct opd_profile_hash *hash, struct opd_hash_entry *entries)
{
    struct overflow *overflow = &hash->overflow;
    size_t taken = 0;
    size_t slots = ((size_t)hash->mask + 1) * WAYS;
    for (size_t i = 0; hash->used != 0 && i < slots; i++) {
        struct opd_hash_slot *slot = &hash->slots[i];
        if (slot->counts == 0)
            continue;
        struct opd_hash_entry *entry = NULL;
        if (overflow->count != 0)
            entry =
                overflow_find(overflow, mix(slot->sfile, slot->stack), slot->sfile, slot->stack);
        if (entry == NULL) {
            entry = &entries[taken++];
            *entry = (struct opd_hash_entry){.sfile = slot->sfile, .stack = slot->stack};
        }
        entry->hits += slot->counts & HITS_MAX;
        entry->weight += slot->counts >> HIT_BITS;
        *slot = (struct opd_hash_slot){0};
        hash->used--;
    }
    if (overflow->count != 0)
        for (size_t i = 0; i < overflow->capacity; i++)
            if (overflow->entries[i].hits != 0)
                entries[taken++] = overflow->entries[i];
    // Room for as many stays: the next window is most often like this one.
    size_t goal = hash->first_capacity;
    while (goal < 2 * (size_t)overflow->count)
        goal *= 2;
    if (overflow->capacity > goal) {
        void *smaller = realloc(overflow->entries, goal * sizeof *overflow->entries);
        if (smaller != NULL) {
            overflow->entries = smaller;
            overflow->capacity = goal;
            count_bytes(hash);
        }
    }
    if (overflow->count != 0)
        memset(overflow->entries, 0, overflow->capacity * sizeof *overflow->entries);
    overflow->count = 0;
    return taken;
}

void
opd_profile_hash_stats(const struct opd_profile_hash *hash, struct opd_profile_hash_stats *stats)
{
    *stats = (struct opd_profile_hash_stats){
        .hits = atomic_load_explicit(&hash->hits, memory_order_relaxed),
        .dropped = atomic_load_explicit(&hash->dropped, memory_order_relaxed),
        .evictions = atomic_load_explicit(&hash->evictions, memory_order_relaxed),
        .carries = atomic_load_explicit(&hash->carries, memory_order_relaxed),
        .bytes = atomic_load_explicit(&hash->bytes, memory_order_relaxed),
    };
}

// The pair. `state` goes IDLE -> ASKED (reader) -> DONE (adder) -> IDLE
// (reader); nobody else moves it, so each step has one writer. ASKED gives
// the emptied table to the adder, DONE the full one to the reader: release on
// each store, acquire on each load that acts on it.
enum { STATE_IDLE, STATE_ASKED, STATE_DONE };

struct opd_hash_pair {
    struct opd_profile_hash *tables[2];
    uint32_t active; // the adder's; the reader reads it while the state is DONE
    _Alignas(CACHE_LINE) _Atomic uint32_t state;
    _Atomic uint32_t reading; // a reader is inside request()
};
_Static_assert(sizeof(_Atomic uint32_t) == 4, "the state is a futex");

struct opd_hash_pair *
opd_hash_pair_create(uint32_t buckets, uint32_t limit)
{
    struct opd_hash_pair *pair = aligned_alloc(CACHE_LINE, sizeof *pair);
    if (pair == NULL)
        return NULL;
    memset(pair, 0, sizeof *pair);
    for (unsigned i = 0; i < 2; i++) {
        pair->tables[i] = opd_profile_hash_create(buckets, limit);
        if (pair->tables[i] == NULL) {
            int saved = errno;
            opd_hash_pair_destroy(pair);
            errno = saved;
            return NULL;
        }
    }
    return pair;
}

void
opd_hash_pair_destroy(struct opd_hash_pair *pair)
{
    if (pair == NULL)
        return;
    opd_profile_hash_destroy(pair->tables[0]);
    opd_profile_hash_destroy(pair->tables[1]);
    free(pair);
}

void
opd_hash_pair_stats(const struct opd_hash_pair *pair, struct opd_profile_hash_stats *stats)
{
    struct opd_profile_hash_stats other;
    opd_profile_hash_stats(pair->tables[0], stats);
    opd_profile_hash_stats(pair->tables[1], &other);
    stats->hits += other.hits;
    stats->dropped += other.dropped;
    stats->evictions += other.evictions;
    stats->carries += other.carries;
    stats->bytes += other.bytes;
}

struct opd_profile_hash *
opd_hash_pair_active(struct opd_hash_pair *pair)
{
    return pair->tables[pair->active];
}

int
opd_hash_pair_asked(struct opd_hash_pair *pair)
{
    if (LIKELY(atomic_load_explicit(&pair->state, memory_order_relaxed) != STATE_ASKED))
        return 0;
    // Again with acquire: what the reader did to the table that comes back.
    return atomic_load_explicit(&pair->state, memory_order_acquire) == STATE_ASKED;
}

int
opd_hash_pair_poll(struct opd_hash_pair *pair)
{
    if (LIKELY(!opd_hash_pair_asked(pair)))
        return 0;
    pair->active ^= 1;
    atomic_store_explicit(&pair->state, STATE_DONE, memory_order_release);
    syscall(SYS_futex, &pair->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    return 1;
}

static struct timespec
after_ms(int timeout_ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += timeout_ms / 1000;
    at.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

// 0 once the state is DONE, else -ETIMEDOUT.
static int
wait_done(struct opd_hash_pair *pair, int timeout_ms)
{
    struct timespec deadline = {0};
    if (timeout_ms > 0)
        deadline = after_ms(timeout_ms);
    int over = timeout_ms == 0;
    for (;;) {
        if (atomic_load_explicit(&pair->state, memory_order_acquire) == STATE_DONE)
            return 0;
        if (over)
            return -ETIMEDOUT;
        long rc = syscall(SYS_futex, &pair->state, FUTEX_WAIT_BITSET_PRIVATE, STATE_ASKED,
                          timeout_ms > 0 ? &deadline : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
        over = rc != 0 && errno == ETIMEDOUT;
    }
}

int
opd_hash_pair_request(struct opd_hash_pair *pair, int timeout_ms,
                      struct opd_profile_hash **finished)
{
    if (atomic_exchange_explicit(&pair->reading, 1, memory_order_acquire) != 0)
        return -EBUSY;
    uint32_t idle = STATE_IDLE;
    atomic_compare_exchange_strong_explicit(&pair->state, &idle, STATE_ASKED, memory_order_release,
                                            memory_order_relaxed);
    int rc = wait_done(pair, timeout_ms);
    if (rc == 0) {
        *finished = pair->tables[pair->active ^ 1];
        atomic_store_explicit(&pair->state, STATE_IDLE, memory_order_relaxed);
    }
    atomic_store_explicit(&pair->reading, 0, memory_order_release);
    return rc;
}
