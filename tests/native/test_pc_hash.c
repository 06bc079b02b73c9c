// SPDX-License-Identifier: Apache-2.0
// Tables of a CPU in front of a shared profile buffer, one thread: what each
// policy does when there is no room, and that the counters say it.
#include "opd/pc_hash.h"
#include "t.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define LENGTH 4096u

static struct opd_pc_hash *
make(uint32_t slots, uint32_t ways, uint32_t policy)
{
    const struct opd_pc_options options = {
        .shape = {.slots = slots, .ways = ways, .policy = policy}, .cpus = 3, .length = LENGTH};
    struct opd_pc_hash *hash = opd_pc_hash_create(&options);
    CHECK(hash != NULL);
    return hash;
}

static void
add(struct opd_pc_hash *hash, uint32_t cpu, uint32_t slot, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        opd_pc_hash_add(hash, cpu, &slot, 1);
}

static uint32_t slots[LENGTH], hits[LENGTH];

static void
test_a_slot_is_one_update(void)
{
    struct opd_pc_hash *hash = make(512, 512, OPD_PC_FLUSH);
    struct opd_pc_stats stats;
    add(hash, 0, 0, 1000); // slot 0 is a slot like any other
    add(hash, 2, 0, 10);
    add(hash, 2, LENGTH - 1, 5);
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.hits == 1015 && stats.shared_updates == 0 && stats.flips == 0);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 2);
    CHECK(slots[0] == 0 && hits[0] == 1010 && slots[1] == LENGTH - 1 && hits[1] == 5);
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.shared_updates == 3 && stats.flips == 1 && stats.flushes == 0);
    CHECK(stats.probe_max == 1 && stats.ns_per_hit > 0 && stats.flip_ns > 0);
    opd_pc_hash_stats_cpu(hash, 1, &stats);
    CHECK(stats.hits == 0 && stats.bytes == 0 && stats.flips == 0);
    opd_pc_hash_stats_cpu(hash, 2, &stats);
    CHECK(stats.hits == 15 && stats.shared_updates == 2 && stats.bytes >= 8192 && stats.flips == 1);
    // Nothing came since: nothing is flushed twice.
    CHECK(opd_pc_hash_read(hash, slots, hits, 1) == 2);
    CHECK(slots[0] == 0 && hits[0] == 1010);
    opd_pc_hash_destroy(hash);
}

static void
test_a_full_table_is_flushed_whole(void)
{
    struct opd_pc_hash *hash = make(64, 64, OPD_PC_FLUSH);
    struct opd_pc_stats stats;
    for (uint32_t i = 0; i < 64; i++)
        add(hash, 0, i * 61, 2);
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.flushes == 0 && stats.shared_updates == 0); // all groups were looked through
    add(hash, 0, 4000, 1);
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.flushes == 1 && stats.shared_updates == 64 && stats.probe_max == 64);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 65);
    for (unsigned i = 0; i < 64; i++)
        CHECK(hits[i] == (slots[i] == 4000 ? 1u : 2u));
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.shared_updates == 65 && stats.hits == 129);
    opd_pc_hash_destroy(hash);
}

static void
test_fewer_ways_overflow_sooner(void)
{
    struct opd_pc_hash *hash = make(64, 8, OPD_PC_FLUSH);
    struct opd_pc_stats stats;
    for (uint32_t i = 0; i < 9; i++)
        add(hash, 0, i * 8, 1); // 8 groups: all the same one
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.flushes == 1 && stats.shared_updates == 8 && stats.probe_max == 8);
    opd_pc_hash_destroy(hash);
}

static void
test_one_slot_gives_way(void)
{
    struct opd_pc_hash *hash = make(64, 4, OPD_PC_EVICT);
    struct opd_pc_stats stats;
    for (uint32_t i = 0; i < 6; i++)
        add(hash, 1, i * 16, i + 1); // 16 groups of 4: all the same one
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.evictions == 2 && stats.shared_updates == 2 && stats.flushes == 0);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 6);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(slots[i] == i * 16 && hits[i] == i + 1);
    opd_pc_hash_destroy(hash);
}

static void
test_without_a_policy_the_hit_goes_by(void)
{
    struct opd_pc_hash *hash = make(1, 1, OPD_PC_NONE);
    struct opd_pc_stats stats;
    add(hash, 1, 7, 5);
    add(hash, 1, 8, 3);
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.shared_updates == 3 && stats.hits == 8 && stats.evictions == 0);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 2);
    CHECK(hits[0] == 5 && hits[1] == 3);
    opd_pc_hash_destroy(hash);
}

static void
test_a_cpu_that_leaves_and_comes_again(void)
{
    struct opd_pc_hash *hash = make(64, 64, OPD_PC_FLUSH);
    struct opd_pc_stats stats;
    add(hash, 0, 1, 1);
    add(hash, 1, 2, 2);
    opd_pc_hash_flush_cpu(hash, 1);
    opd_pc_hash_flush_cpu(hash, 99); // none of ours
    opd_pc_hash_stats_cpu(hash, 1, &stats);
    CHECK(stats.shared_updates == 1);
    opd_pc_hash_stats_cpu(hash, 0, &stats);
    CHECK(stats.shared_updates == 0);
    add(hash, 1, 2, 1);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 2);
    CHECK(hits[0] == 1 && hits[1] == 3);
    opd_pc_hash_destroy(hash);
}

static void
test_reset_empties_the_buffer_only(void)
{
    struct opd_pc_hash *hash = make(64, 64, OPD_PC_FLUSH);
    struct opd_pc_stats stats;
    add(hash, 0, 1, 9);
    opd_pc_hash_reset(hash);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 0);
    add(hash, 0, 3, 1);
    CHECK(opd_pc_hash_read(hash, slots, hits, LENGTH) == 1 && slots[0] == 3 && hits[0] == 1);
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.hits == 10 && stats.shared_updates == 2);
    opd_pc_hash_destroy(hash);
}

static void
test_a_word_that_goes_round_is_told(void)
{
    static _Atomic uint32_t buffer[2] = {0, UINT32_MAX};
    const struct opd_pc_options options = {.shape = {.slots = 8, .ways = 8},
                                           .nodes = (const int32_t[]){0},
                                           .cpus = 1,
                                           .length = 2,
                                           .buffer = buffer};
    struct opd_pc_hash *hash = opd_pc_hash_create(&options);
    CHECK(hash != NULL);
    add(hash, 0, 1, 3);
    opd_pc_hash_flush(hash);
    struct opd_pc_stats stats;
    opd_pc_hash_stats(hash, &stats);
    CHECK(stats.wraps == 1 && atomic_load(&buffer[1]) == 2);
    opd_pc_hash_destroy(hash);
}

static void
test_shapes_that_cannot_be(void)
{
    static const struct opd_pc_options bad[] = {
        {.shape = {.slots = 0, .ways = 1}, .cpus = 1, .length = 1},
        {.shape = {.slots = 48, .ways = 8}, .cpus = 1, .length = 1},
        {.shape = {.slots = OPD_PC_SLOTS_MOST * 2, .ways = 8}, .cpus = 1, .length = 1},
        {.shape = {.slots = 8, .ways = 16}, .cpus = 1, .length = 1},
        {.shape = {.slots = 8, .ways = 3}, .cpus = 1, .length = 1},
        {.shape = {.slots = 8, .ways = 8, .policy = 3}, .cpus = 1, .length = 1},
        {.shape = {.slots = 8, .ways = 8}, .cpus = 0, .length = 1},
        {.shape = {.slots = 8, .ways = 8}, .cpus = OPD_PC_CPUS_MOST + 1, .length = 1},
        {.shape = {.slots = 8, .ways = 8}, .cpus = 1, .length = 0},
        {.shape = {.slots = 8, .ways = 8}, .cpus = 1, .length = 1ull << 32},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(opd_pc_hash_create(&bad[i]) == NULL && errno == EINVAL);
    }
}

int
main(void)
{
    RUN(test_a_slot_is_one_update);
    RUN(test_a_full_table_is_flushed_whole);
    RUN(test_fewer_ways_overflow_sooner);
    RUN(test_one_slot_gives_way);
    RUN(test_without_a_policy_the_hit_goes_by);
    RUN(test_a_cpu_that_leaves_and_comes_again);
    RUN(test_reset_empties_the_buffer_only);
    RUN(test_a_word_that_goes_round_is_told);
    RUN(test_shapes_that_cannot_be);
    return 0;
}
