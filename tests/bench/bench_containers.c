// SPDX-License-Identifier: Apache-2.0
// What a sample costs in the containers: the profile hash, the order of time,
// interning, identities. Prints the median and the best of ROUNDS rounds, in
// ns an operation.
//   cc -O2 -D_GNU_SOURCE -Inative/include tests/bench/bench_containers.c
//      native/src/{profile_hash,order,intern,identity}.c -o /tmp/bench_containers
#include "opd/identity.h"
#include "opd/intern.h"
#include "opd/order.h"
#include "opd/profile_hash.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 15
#define OPERATIONS 1000000
#define RECORD 120

static uint64_t state = 88172645463325252u;

static uint64_t
next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double
now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void
print(const char *what, double *ns, unsigned rounds)
{
    qsort(ns, rounds, sizeof *ns, compare);
    printf("%-58s %8.1f ns  (best %.1f)\n", what, ns[rounds / 2], ns[0]);
}

// Keys as a window has them: `live` of them, half of the hits on 64.
static void
bench_add(const char *what, uint32_t buckets, uint32_t live, int polled)
{
    static uint32_t keys[OPERATIONS];
    double add[ROUNDS], take[ROUNDS];
    for (unsigned i = 0; i < OPERATIONS; i++) {
        uint64_t r = next_random();
        keys[i] = (uint32_t)((r & 1 ? r >> 8 & 63 : r >> 8) % live);
    }
    struct opd_hash_pair *pair = opd_hash_pair_create(buckets, 1 << 20);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct opd_profile_hash *hash = opd_hash_pair_active(pair);
        double start = now_ns();
        for (unsigned i = 0; i < OPERATIONS; i++) {
            if (polled && opd_hash_pair_poll(pair))
                hash = opd_hash_pair_active(pair);
            opd_profile_hash_add(hash, keys[i] & 15, keys[i], 10101010);
        }
        add[round] = (now_ns() - start) / OPERATIONS;
        size_t bound = opd_profile_hash_bound(hash);
        struct opd_hash_entry *entries = malloc((bound + 1) * sizeof *entries);
        memset(entries, 0, (bound + 1) * sizeof *entries);
        start = now_ns();
        size_t count = opd_profile_hash_take(hash, entries);
        take[round] = (now_ns() - start) / (double)count;
        free(entries);
    }
    print(what, add, ROUNDS);
    print("  take, per entry", take, ROUNDS);
    opd_hash_pair_destroy(pair);
}

// Each turn: `burst` records of every stream are copied in, then popped in
// order up to a safe time that leaves the last tenth.
static void
bench_order(const char *what, unsigned streams, unsigned burst, unsigned disorder)
{
    static unsigned char record[RECORD];
    double ns[ROUNDS];
    struct opd_order *order = opd_order_create(streams, (size_t)64 << 20);
    struct opd_order_item item;
    uint64_t clock = 1000000, sum = 0, seed = 12345;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned done = 0;
        double start = now_ns();
        while (done < OPERATIONS) {
            for (unsigned s = 0; s < streams; s++)
                for (unsigned i = 0; i < burst; i++) {
                    uint64_t time = clock + i * 1000 + s;
                    seed = seed * 6364136223846793005u + 1442695040888963407u;
                    if (disorder != 0 && (seed >> 40) % disorder == 0)
                        time -= 1500;
                    opd_order_push(order, s, time, s, record, RECORD);
                }
            clock += (uint64_t)burst * 1000;
            while (opd_order_pop(order, clock - burst * 100, &item) == 1)
                sum += ((const unsigned char *)item.bytes)[RECORD - 1] + item.tag;
            done += streams * burst;
        }
        ns[round] = (now_ns() - start) / done;
    }
    print(what, ns, ROUNDS);
    opd_order_destroy(order);
    if (sum == 1)
        printf("\n");
}

static void
bench_put(const char *what, unsigned strings)
{
    double known[ROUNDS], fresh[ROUNDS];
    unsigned char *bytes = malloc((size_t)strings * RECORD);
    for (size_t i = 0; i < (size_t)strings * RECORD / 4; i++)
        ((uint32_t *)(void *)bytes)[i] = (uint32_t)next_random();
    static uint32_t picks[OPERATIONS];
    for (unsigned i = 0; i < OPERATIONS; i++)
        picks[i] = (uint32_t)(next_random() % strings);
    struct opd_intern *intern = opd_intern_create(1 << 22, SIZE_MAX);
    uint32_t sum = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        opd_intern_reset(intern);
        double start = now_ns();
        for (unsigned i = 0; i < strings; i++)
            sum += opd_intern_put(intern, bytes + (size_t)i * RECORD, RECORD, NULL);
        fresh[round] = (now_ns() - start) / strings;
        start = now_ns();
        for (unsigned i = 0; i < OPERATIONS; i++)
            sum += opd_intern_put(intern, bytes + (size_t)picks[i] * RECORD, RECORD, NULL);
        known[round] = (now_ns() - start) / OPERATIONS;
    }
    print(what, known, ROUNDS);
    print("  new strings, growing from empty", fresh, ROUNDS);
    opd_intern_destroy(intern);
    free(bytes);
    if (sum == 1)
        printf("\n");
}

static void
bench_identity(void)
{
    enum { FRAMES = 20, STACKS = 20000 };
    static uint8_t flags[STACKS];
    static uint32_t starts[STACKS + 1], images[STACKS * FRAMES];
    static uint64_t addresses[STACKS * FRAMES];
    static struct opd_identity known[64], identities[STACKS];
    double ns[ROUNDS];
    for (unsigned i = 0; i < 64; i++)
        opd_identity_of(&i, sizeof i, &known[i]);
    for (unsigned i = 0; i < STACKS * FRAMES; i++) {
        images[i] = (uint32_t)(next_random() % 64);
        addresses[i] = next_random();
    }
    for (unsigned i = 0; i <= STACKS; i++)
        starts[i] = i * FRAMES;
    for (unsigned round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        opd_identity_of_stacks(flags, starts, STACKS, images, addresses, STACKS * FRAMES, known, 64,
                               identities);
        ns[round] = (now_ns() - start) / STACKS;
    }
    print("identity of a stack of 20 frames", ns, ROUNDS);
}

int
main(void)
{
    bench_add("hash add, 2000 keys in 2048 buckets", 2048, 2000, 0);
    bench_add("hash add + poll, 2000 keys in 2048 buckets", 2048, 2000, 1);
    bench_add("hash add, 20000 keys in 8192 buckets", 8192, 20000, 0);
    bench_add("hash add, 200000 keys in 8192 buckets (evicting)", 8192, 200000, 0);
    bench_order("push + pop 120 bytes, 2 streams, bursts of 500", 2, 500, 0);
    bench_order("push + pop, 2 streams, every 20th inverted", 2, 500, 20);
    bench_order("push + pop, 2 streams, bursts of 20000", 2, 20000, 0);
    bench_order("push + pop, 16 streams, bursts of 500", 16, 500, 0);
    bench_order("push + pop, 512 streams, bursts of 100", 512, 100, 0);
    bench_put("intern put of known 120 bytes, 1000 strings", 1000);
    bench_put("intern put of known 120 bytes, 20000 strings", 20000);
    bench_identity();
    return 0;
}
