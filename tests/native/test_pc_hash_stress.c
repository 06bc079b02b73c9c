// SPDX-License-Identifier: Apache-2.0
// Four CPUs count without pause, ten readers flip at random moments, CPUs leave
// now and then: every hit that went in came out, slot by slot, by every policy.
// Hits in all: argv[1], else $OPD_STRESS_HITS, else 3 million.
#include "opd/pc_hash.h"
#include "t.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define CPUS 4
#define READERS 10
#define LENGTH 6000u
#define BATCH 16u

struct adder {
    struct opd_pc_hash *hash;
    uint64_t count, seed;
    uint32_t cpu;
    uint32_t in[LENGTH]; // as the buffer's words: modulo 2^32
    pthread_t thread;
};

struct reader {
    struct opd_pc_hash *hash;
    uint64_t seed, reads;
    pthread_t thread;
};

static atomic_int over;

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
    struct adder *adder = argument;
    uint64_t random = adder->seed;
    for (uint64_t done = 0; done < adder->count;) {
        uint32_t slots[BATCH];
        uint64_t some = 1 + next_random(&random) % BATCH;
        some = some < adder->count - done ? some : adder->count - done;
        for (uint64_t i = 0; i < some; i++) {
            uint64_t r = next_random(&random);
            // Mostly a few, the first and the last among them.
            slots[i] = r & 7 ? (r & 15 ? (uint32_t)(r >> 32) % 40 : LENGTH - 1)
                             : (uint32_t)(r >> 32) % LENGTH;
            adder->in[slots[i]]++;
        }
        opd_pc_hash_add(adder->hash, adder->cpu, slots, some);
        done += some;
    }
    return NULL;
}

static void *
read_often(void *argument)
{
    struct reader *reader = argument;
    static _Thread_local uint32_t slots[LENGTH], hits[LENGTH];
    while (!atomic_load(&over)) {
        uint64_t r = next_random(&reader->seed);
        if (r % 4 == 0)
            opd_pc_hash_flush_cpu(reader->hash, (uint32_t)(r >> 8) % CPUS);
        else if (r % 4 == 1)
            opd_pc_hash_flush(reader->hash);
        else
            CHECK(opd_pc_hash_read(reader->hash, slots, hits, LENGTH) <= LENGTH);
        reader->reads++;
        struct opd_pc_stats stats;
        opd_pc_hash_stats(reader->hash, &stats);
        CHECK(stats.shared_updates <= stats.hits + LENGTH);
        struct timespec nap = {.tv_nsec = (long)(r >> 16) % 2000000};
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static void
count(const struct opd_pc_shape *shape, uint64_t total)
{
    static struct adder adders[CPUS];
    static struct reader readers[READERS];
    static _Atomic uint32_t buffer[LENGTH];
    memset((void *)buffer, 0, sizeof buffer);
    const struct opd_pc_options options = {
        .shape = *shape, .cpus = CPUS, .length = LENGTH, .buffer = buffer};
    struct opd_pc_hash *hash = opd_pc_hash_create(&options);
    CHECK(hash != NULL);
    atomic_store(&over, 0);
    for (unsigned i = 0; i < CPUS; i++) {
        adders[i] = (struct adder){
            .hash = hash, .cpu = i, .count = total / CPUS, .seed = 0x9e3779b97f4a7c15u + i};
        CHECK(pthread_create(&adders[i].thread, NULL, add, &adders[i]) == 0);
    }
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.hash = hash, .seed = 88172645463325252u + i};
        CHECK(pthread_create(&readers[i].thread, NULL, read_often, &readers[i]) == 0);
    }
    uint64_t in = 0, reads = 0, out = 0;
    for (unsigned i = 0; i < CPUS; i++) {
        CHECK(pthread_join(adders[i].thread, NULL) == 0);
        in += adders[i].count;
    }
    atomic_store(&over, 1);
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(pthread_join(readers[i].thread, NULL) == 0);
        reads += readers[i].reads;
    }
    opd_pc_hash_flush(hash);
    for (unsigned i = 0; i < LENGTH; i++) {
        uint32_t expected = 0;
        for (unsigned j = 0; j < CPUS; j++)
            expected += adders[j].in[i];
        CHECK(atomic_load(&buffer[i]) == expected);
        out += atomic_load(&buffer[i]);
    }
    struct opd_pc_stats stats;
    opd_pc_hash_stats(hash, &stats);
    printf("policy %u: in %" PRIu64 " = out %" PRIu64 "; %" PRIu64 " reads, %" PRIu64
           " flips, %" PRIu64 " flushes, %" PRIu64 " evictions, %" PRIu64 " updates, %.1f ns\n",
           shape->policy, in, out, reads, stats.flips, stats.flushes, stats.evictions,
           stats.shared_updates, stats.ns_per_hit);
    CHECK(stats.hits == in && out == in && stats.wraps == 0);
    CHECK(stats.shared_updates <= in && stats.shared_updates > 0);
    opd_pc_hash_destroy(hash);
}

int
main(int argc, char **argv)
{
    const char *asked = argc > 1 ? argv[1] : getenv("OPD_STRESS_HITS");
    const uint64_t total = asked != NULL ? strtoull(asked, NULL, 10) : 3000000;
    static const struct opd_pc_shape shapes[] = {
        {.slots = 512, .ways = 512, .policy = OPD_PC_FLUSH},
        {.slots = 512, .ways = 4, .policy = OPD_PC_EVICT},
        {.slots = 64, .ways = 8, .policy = OPD_PC_NONE},
    };
    // Most of them by the way that is the default.
    count(&shapes[0], total / 8 * 6 / CPUS * CPUS);
    count(&shapes[1], total / 8 / CPUS * CPUS);
    count(&shapes[2], total / 8 / CPUS * CPUS);
    return 0;
}
