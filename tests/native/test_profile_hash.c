// SPDX-License-Identifier: Apache-2.0
// The profile hash against a plain array of sums, and each rule of the header
// by itself.
#include "opd/profile_hash.h"
#include "t.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define SFILES 16
#define STACKS 4096
#define WEIGHT_40 ((UINT64_C(1) << 40) - 1)
#define HITS_24 ((1u << 24) - 1)

static uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t
take(struct opd_profile_hash *hash, struct opd_hash_entry **entries)
{
    size_t bound = opd_profile_hash_bound(hash);
    *entries = malloc((bound + 1) * sizeof **entries);
    CHECK(*entries != NULL);
    size_t count = opd_profile_hash_take(hash, *entries);
    CHECK(count <= bound);
    CHECK(opd_profile_hash_bound(hash) == 0);
    return count;
}

static struct opd_profile_hash_stats
stats_of(const struct opd_profile_hash *hash)
{
    struct opd_profile_hash_stats stats;
    opd_profile_hash_stats(hash, &stats);
    return stats;
}

static void
create_refuses_wrong_sizes(void)
{
    errno = 0;
    CHECK(opd_profile_hash_create(0, 10) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(opd_profile_hash_create(48, 10) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(opd_hash_pair_create(3, 10) == NULL && errno == EINVAL);
    opd_profile_hash_destroy(NULL);
    opd_hash_pair_destroy(NULL);
}

static void
a_key_is_given_once_with_its_sums(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(16, 100);
    struct opd_hash_entry *entries;
    for (unsigned i = 0; i < 5; i++)
        CHECK(opd_profile_hash_add(hash, 7, 9, 10 + i) == 0);
    CHECK(opd_profile_hash_add(hash, UINT32_MAX, 0, 0) == 0);
    CHECK(take(hash, &entries) == 2);
    for (unsigned i = 0; i < 2; i++) {
        if (entries[i].sfile == 7)
            CHECK(entries[i].stack == 9 && entries[i].hits == 5 && entries[i].weight == 60);
        else
            CHECK(entries[i].sfile == UINT32_MAX && entries[i].stack == 0 && entries[i].hits == 1 &&
                  entries[i].weight == 0);
    }
    free(entries);
    CHECK(take(hash, &entries) == 0);
    free(entries);
    CHECK(stats_of(hash).hits == 6);
    opd_profile_hash_destroy(hash);
}

static void
a_full_weight_is_carried(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(1, 100);
    struct opd_hash_entry *entries;
    CHECK(opd_profile_hash_add(hash, 1, 1, WEIGHT_40) == 0);
    CHECK(opd_profile_hash_add(hash, 1, 1, 0) == 0); // still fits
    CHECK(stats_of(hash).carries == 0);
    CHECK(opd_profile_hash_add(hash, 1, 1, 1) == 0);
    CHECK(stats_of(hash).carries == 1);
    CHECK(opd_profile_hash_add(hash, 1, 1, WEIGHT_40) == 0);
    CHECK(stats_of(hash).carries == 2);
    CHECK(take(hash, &entries) == 1);
    CHECK(entries[0].hits == 4 && entries[0].weight == 2 * WEIGHT_40 + 1);
    free(entries);
    opd_profile_hash_destroy(hash);
}

static void
full_hits_are_carried(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(1, 100);
    struct opd_hash_entry *entries;
    for (unsigned i = 0; i < HITS_24; i++)
        CHECK(opd_profile_hash_add(hash, 1, 1, 3) == 0);
    CHECK(stats_of(hash).carries == 0);
    for (unsigned i = 0; i < 10; i++)
        CHECK(opd_profile_hash_add(hash, 1, 1, 3) == 0);
    CHECK(stats_of(hash).carries == 1);
    CHECK(take(hash, &entries) == 1);
    CHECK(entries[0].hits == HITS_24 + 10u && entries[0].weight == 3 * (HITS_24 + UINT64_C(10)));
    free(entries);
    opd_profile_hash_destroy(hash);
}

static void
a_weight_beyond_a_slot_is_exact(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(1, 1);
    struct opd_hash_entry *entries;
    CHECK(opd_profile_hash_add(hash, 1, 1, 5) == 0);
    CHECK(opd_profile_hash_add(hash, 1, 1, UINT64_C(1) << 40) == 0);
    CHECK(opd_profile_hash_add(hash, 1, 1, UINT64_C(1) << 63) == 0);
    CHECK(opd_profile_hash_add(hash, 2, 2, UINT64_C(1) << 40) == -ENOSPC);
    CHECK(opd_profile_hash_add(hash, 2, 2, 4) == 0);
    CHECK(take(hash, &entries) == 2);
    CHECK(entries[0].sfile == 2 && entries[0].hits == 1 && entries[0].weight == 4);
    CHECK(entries[1].sfile == 1 && entries[1].hits == 3);
    CHECK(entries[1].weight == (UINT64_C(1) << 63) + (UINT64_C(1) << 40) + 5);
    free(entries);
    CHECK(stats_of(hash).hits == 5 && stats_of(hash).dropped == 1);
    opd_profile_hash_destroy(hash);
}

static void
at_the_limit_only_the_new_hit_is_dropped(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(1, 2);
    struct opd_hash_entry *entries;
    for (uint32_t i = 0; i < 6; i++) // four slots, two victims
        CHECK(opd_profile_hash_add(hash, i, 0, 100) == 0);
    CHECK(stats_of(hash).evictions == 2);
    CHECK(opd_profile_hash_add(hash, 6, 0, 1) == -ENOSPC);
    CHECK(opd_profile_hash_add(hash, 7, 0, 1) == -ENOSPC);
    for (uint32_t i = 0; i < 6; i++) // known keys still count
        CHECK(opd_profile_hash_add(hash, i, 0, 1) == 0);
    // A slot whose carry finds no room keeps what it has.
    CHECK(opd_profile_hash_add(hash, 6, 0, 1) == -ENOSPC);
    unsigned refused = 0;
    for (uint32_t i = 0; i < 6; i++)
        refused += opd_profile_hash_add(hash, i, 0, WEIGHT_40) != 0;
    CHECK(refused == 4);
    CHECK(stats_of(hash).dropped == 7 && stats_of(hash).hits == 21);
    CHECK(take(hash, &entries) == 6);
    uint64_t hits = 0, weight = 0;
    for (unsigned i = 0; i < 6; i++) {
        CHECK(entries[i].hits >= 2 && entries[i].weight % WEIGHT_40 == 101);
        hits += entries[i].hits;
        weight += entries[i].weight;
    }
    CHECK(hits == 21 - 7 && weight == 606 + 2 * WEIGHT_40);
    free(entries);
    CHECK(opd_profile_hash_add(hash, 9, 9, 1) == 0); // room again
    opd_profile_hash_destroy(hash);
}

static void
at_the_limit_a_victim_with_an_entry_still_leaves(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(1, 1);
    struct opd_hash_entry *entries;
    for (uint32_t i = 0; i < 4; i++)
        CHECK(opd_profile_hash_add(hash, i, 0, 1) == 0);
    CHECK(opd_profile_hash_add(hash, 3, 0, UINT64_C(1) << 40) == 0);
    CHECK(opd_profile_hash_add(hash, 4, 0, 1) == 0); // 3 leaves
    CHECK(opd_profile_hash_add(hash, 3, 0, 1) == 0); // to its entry
    CHECK(opd_profile_hash_add(hash, 5, 0, 1) == -ENOSPC);
    CHECK(take(hash, &entries) == 5);
    for (unsigned i = 0; i < 5; i++)
        CHECK(entries[i].hits == (entries[i].sfile == 3 ? 3 : 1));
    free(entries);
    opd_profile_hash_destroy(hash);
}

static void
a_limit_of_nothing_keeps_the_slots(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(1, 0);
    struct opd_hash_entry *entries;
    for (uint32_t i = 0; i < 8; i++)
        CHECK(opd_profile_hash_add(hash, i, 0, 1) == (i < 4 ? 0 : -ENOSPC));
    CHECK(take(hash, &entries) == 4);
    free(entries);
    opd_profile_hash_destroy(hash);
}

static void
grown_memory_is_given_back(void)
{
    struct opd_profile_hash *hash = opd_profile_hash_create(4, 1000000);
    struct opd_hash_entry *entries;
    uint64_t before = stats_of(hash).bytes;
    for (unsigned round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 100000; i++)
            CHECK(opd_profile_hash_add(hash, i & 3, i, i) == 0);
        CHECK(stats_of(hash).bytes > before + 100000 * sizeof *entries);
        CHECK(take(hash, &entries) == 100000);
        for (uint32_t i = 0; i < 100000; i++)
            CHECK(entries[i].hits == 1 && entries[i].weight == entries[i].stack);
        free(entries);
        // A window that needed little lets go of what the last one needed.
        CHECK(opd_profile_hash_add(hash, 1, 1, 1) == 0);
        CHECK(take(hash, &entries) == 1);
        free(entries);
        CHECK(stats_of(hash).bytes == before);
    }
    opd_profile_hash_destroy(hash);
}

// Random hits on random shapes: what is taken, with what was refused, is what
// was offered, key by key.
static void
random_hits_match_the_reference(void)
{
    static uint64_t hits[SFILES][STACKS], weight[SFILES][STACKS];
    static const uint32_t limits[] = {0, 1, 5, 300, 3000, 1000000};
    uint64_t random = 88172645463325252u;
    for (unsigned round = 0; round < 48; round++) {
        uint32_t limit = limits[round % 6];
        struct opd_profile_hash *hash = opd_profile_hash_create(1u << (round % 11), limit);
        uint64_t offered = 0, dropped = 0;
        for (unsigned window = 0; window < 3; window++) {
            memset(hits, 0, sizeof hits);
            memset(weight, 0, sizeof weight);
            unsigned count = 1000 + next_random(&random) % 60000;
            for (unsigned i = 0; i < count; i++) {
                uint64_t r = next_random(&random);
                uint32_t sfile = r % SFILES;
                // Half of the hits on few stacks.
                uint32_t stack = r >> 8 & 1 ? (r >> 16) % 32 : (r >> 16) % STACKS;
                uint64_t w = next_random(&random) >> (r >> 58);
                int known = hits[sfile][stack] != 0;
                int rc = opd_profile_hash_add(hash, sfile, stack, w);
                offered++;
                if (rc == 0) {
                    hits[sfile][stack]++;
                    weight[sfile][stack] += w;
                } else {
                    CHECK(rc == -ENOSPC);
                    // A known key is refused only when its slot cannot be carried.
                    CHECK(!known || w + weight[sfile][stack] > WEIGHT_40);
                    dropped++;
                }
            }
            struct opd_hash_entry *entries;
            size_t taken = take(hash, &entries);
            for (size_t i = 0; i < taken; i++) {
                uint32_t sfile = entries[i].sfile, stack = entries[i].stack;
                CHECK(entries[i].hits != 0 && entries[i].hits == hits[sfile][stack]);
                CHECK(entries[i].weight == weight[sfile][stack]);
                hits[sfile][stack] = 0; // twice would be seen
            }
            for (unsigned s = 0; s < SFILES; s++)
                for (unsigned k = 0; k < STACKS; k++)
                    CHECK(hits[s][k] == 0);
            free(entries);
        }
        CHECK(stats_of(hash).hits == offered && stats_of(hash).dropped == dropped);
        CHECK(limit < 1000000 || dropped == 0);
        opd_profile_hash_destroy(hash);
    }
}

static void
a_request_that_times_out_stands(void)
{
    struct opd_hash_pair *pair = opd_hash_pair_create(4, 10);
    struct opd_profile_hash *first = opd_hash_pair_active(pair), *finished = NULL;
    CHECK(opd_profile_hash_add(first, 1, 2, 3) == 0);
    CHECK(!opd_hash_pair_asked(pair) && opd_hash_pair_poll(pair) == 0);
    CHECK(opd_hash_pair_request(pair, 0, &finished) == -ETIMEDOUT);
    CHECK(opd_hash_pair_request(pair, 20, &finished) == -ETIMEDOUT);
    CHECK(finished == NULL);
    CHECK(opd_hash_pair_asked(pair));
    CHECK(opd_hash_pair_active(pair) == first);
    CHECK(opd_hash_pair_poll(pair) == 1);
    CHECK(opd_hash_pair_poll(pair) == 0); // one swap a request
    CHECK(opd_hash_pair_active(pair) != first);
    CHECK(opd_hash_pair_request(pair, 0, &finished) == 0);
    CHECK(finished == first && opd_profile_hash_bound(finished) == 1);
    // Not taken: it goes back with its hit in it, and comes again.
    CHECK(opd_hash_pair_request(pair, 0, &finished) == -ETIMEDOUT);
    CHECK(opd_hash_pair_poll(pair) == 1);
    CHECK(opd_hash_pair_request(pair, -1, &finished) == 0);
    CHECK(finished != first && opd_profile_hash_bound(finished) == 0);
    CHECK(opd_hash_pair_active(pair) == first && opd_profile_hash_bound(first) == 1);
    opd_hash_pair_destroy(pair);
}

struct waiter {
    struct opd_hash_pair *pair;
    struct opd_profile_hash *finished;
    int rc;
};

static void *
wait_for_swap(void *argument)
{
    struct waiter *waiter = argument;
    waiter->rc = opd_hash_pair_request(waiter->pair, -1, &waiter->finished);
    return NULL;
}

static void
a_second_reader_is_refused(void)
{
    struct waiter waiter = {.pair = opd_hash_pair_create(4, 10), .rc = 1};
    struct opd_profile_hash *active = opd_hash_pair_active(waiter.pair), *other = NULL;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_swap, &waiter) == 0);
    while (!opd_hash_pair_asked(waiter.pair))
        usleep(100);
    CHECK(opd_hash_pair_request(waiter.pair, 0, &other) == -EBUSY);
    CHECK(opd_hash_pair_poll(waiter.pair) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waiter.rc == 0 && waiter.finished == active && other == NULL);
    opd_hash_pair_destroy(waiter.pair);
}

int
main(void)
{
    RUN(create_refuses_wrong_sizes);
    RUN(a_key_is_given_once_with_its_sums);
    RUN(a_full_weight_is_carried);
    RUN(full_hits_are_carried);
    RUN(a_weight_beyond_a_slot_is_exact);
    RUN(at_the_limit_only_the_new_hit_is_dropped);
    RUN(at_the_limit_a_victim_with_an_entry_still_leaves);
    RUN(a_limit_of_nothing_keeps_the_slots);
    RUN(grown_memory_is_given_back);
    RUN(random_hits_match_the_reference);
    RUN(a_request_that_times_out_stands);
    RUN(a_second_reader_is_refused);
    return 0;
}
