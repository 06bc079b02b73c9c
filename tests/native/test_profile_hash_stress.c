// SPDX-License-Identifier: Apache-2.0
// Pairs of tables under load: in each pair one thread adds without pause while
// another asks for the swap at random moments. Every hit and all weight that
// went in came out or was refused, key by key. Two pairs, four threads; hits
// in all: argv[1], else $OPD_STRESS_HITS, else 20 million.
#include "opd/profile_hash.h"
#include "t.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define PAIRS 2
#define SFILES 32
#define STACKS 4096
#define KEYS (SFILES * STACKS)

struct side {
    uint64_t hits[KEYS];
    uint64_t weight[KEYS];
    uint64_t total;
};

struct load {
    struct opd_hash_pair *pair;
    uint64_t count, seed, dropped, swaps, timeouts, entries;
    struct side in, out;
    // Swapped along with the tables, by plain stores: what order the header
    // promises.
    uint64_t kept[2];
    atomic_int added, over;
    pthread_t adder, reader;
};

static uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void *
add(void *argument)
{
    struct load *load = argument;
    struct opd_profile_hash *hash = opd_hash_pair_active(load->pair);
    uint64_t random = load->seed;
    unsigned companion = 0;
    for (uint64_t i = 0; i < load->count || !atomic_load(&load->over); i++) {
        if (opd_hash_pair_asked(load->pair)) {
            companion ^= 1;
            CHECK(opd_hash_pair_poll(load->pair) == 1);
            hash = opd_hash_pair_active(load->pair);
            load->swaps++;
        }
        if (i >= load->count) { // idle, but for the last swaps
            atomic_store(&load->added, 1);
            struct timespec nap = {.tv_nsec = 50000};
            nanosleep(&nap, NULL);
            continue;
        }
        uint64_t r = next_random(&random);
        uint32_t sfile = r % SFILES;
        uint32_t stack = r >> 8 & 3 ? (r >> 16) % 64 : (r >> 16) % STACKS;
        // Mostly a period, now and then one that no slot can hold.
        uint64_t weight = r >> 40 & 0xfff ? r >> 44 : r;
        if (opd_profile_hash_add(hash, sfile, stack, weight) != 0) {
            load->dropped++;
            continue;
        }
        load->kept[companion]++;
        load->in.hits[sfile * STACKS + stack]++;
        load->in.weight[sfile * STACKS + stack] += weight;
        load->in.total++;
    }
    return NULL;
}

static void
collect(struct load *load, struct opd_profile_hash *hash, unsigned companion)
{
    size_t bound = opd_profile_hash_bound(hash);
    struct opd_hash_entry *entries = malloc((bound + 1) * sizeof *entries);
    size_t count = opd_profile_hash_take(hash, entries);
    CHECK(count <= bound);
    uint64_t hits = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned key = entries[i].sfile * STACKS + entries[i].stack;
        CHECK(entries[i].sfile < SFILES && entries[i].stack < STACKS);
        load->out.hits[key] += entries[i].hits;
        load->out.weight[key] += entries[i].weight;
        hits += entries[i].hits;
    }
    load->out.total += hits;
    load->entries += count;
    CHECK(hits == load->kept[companion]);
    load->kept[companion] = 0;
    free(entries);
}

static void *
swap_and_read(void *argument)
{
    struct load *load = argument;
    uint64_t random = ~load->seed;
    unsigned companion = 0, last = 0;
    // Of two swaps after the last hit, the first may be an old request's.
    while (last < 2) {
        int added = atomic_load(&load->added);
        struct opd_profile_hash *finished;
        int timeout_ms = (int)(next_random(&random) % 3) - 1;
        int rc = opd_hash_pair_request(load->pair, timeout_ms, &finished);
        CHECK(rc == 0 || rc == -ETIMEDOUT);
        if (rc == 0) {
            collect(load, finished, companion);
            companion ^= 1;
            last += added;
        } else {
            load->timeouts++;
        }
        struct opd_profile_hash_stats stats; // any thread may look
        opd_hash_pair_stats(load->pair, &stats);
        CHECK(stats.hits <= load->count);
        if (next_random(&random) % 4 != 0) {
            struct timespec nap = {.tv_nsec = (long)(next_random(&random) % 2000000)};
            nanosleep(&nap, NULL);
        }
    }
    atomic_store(&load->over, 1);
    return NULL;
}

int
main(int argc, char **argv)
{
    const char *asked = argc > 1 ? argv[1] : getenv("OPD_STRESS_HITS");
    uint64_t hits = asked != NULL ? strtoull(asked, NULL, 10) : 20000000;
    static struct load loads[PAIRS];
    for (unsigned i = 0; i < PAIRS; i++) {
        loads[i].count = hits / PAIRS;
        loads[i].seed = 0x9e3779b97f4a7c15u + i;
        // The first pair never comes to its limit, the second often does.
        loads[i].pair = opd_hash_pair_create(i == 0 ? 1024 : 64, i == 0 ? KEYS : 2000);
        CHECK(loads[i].pair != NULL);
        CHECK(pthread_create(&loads[i].adder, NULL, add, &loads[i]) == 0);
        CHECK(pthread_create(&loads[i].reader, NULL, swap_and_read, &loads[i]) == 0);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        struct load *load = &loads[i];
        CHECK(pthread_join(load->reader, NULL) == 0);
        CHECK(pthread_join(load->adder, NULL) == 0);
        printf("pair %u: in %" PRIu64 " = out %" PRIu64 " + dropped %" PRIu64 "; %" PRIu64
               " swaps, %" PRIu64 " time-outs, %" PRIu64 " entries\n",
               i, load->count, load->out.total, load->dropped, load->swaps, load->timeouts,
               load->entries);
        CHECK(load->in.total + load->dropped == load->count);
        CHECK(load->out.total == load->in.total);
        CHECK(memcmp(load->in.hits, load->out.hits, sizeof load->in.hits) == 0);
        CHECK(memcmp(load->in.weight, load->out.weight, sizeof load->in.weight) == 0);
        CHECK(i != 0 || load->dropped == 0);
        struct opd_profile_hash_stats stats;
        opd_hash_pair_stats(load->pair, &stats);
        CHECK(stats.hits == load->count && stats.dropped == load->dropped);
        opd_hash_pair_destroy(load->pair);
    }
    return 0;
}
