// SPDX-License-Identifier: Apache-2.0
// Address spaces in time: fork, exec, threads, reuse, snapshots, limits.
#include <errno.h>
#include <string.h>

#include "opd/aspace.h"
#include "t.h"

static const struct opd_spaces_limits limits = {
    .processes = 1000, .threads = 1000, .mappings = 100};

static struct opd_mapping
at(uint64_t start, uint64_t end, uint32_t image)
{
    return (struct opd_mapping){.start = start, .end = end, .image = image};
}

static void
map(struct opd_spaces *spaces, uint32_t pid, uint64_t start, uint64_t end, uint32_t image,
    uint64_t time)
{
    struct opd_mapping mapping = at(start, end, image);
    CHECK(opd_spaces_map(spaces, pid, &mapping, time) == 0);
}

static void
fork_process(struct opd_spaces *spaces, uint32_t pid, uint32_t parent, uint64_t time)
{
    struct opd_fork fork = {.pid = pid, .tid = pid, .parent_pid = parent, .parent_tid = parent};
    opd_spaces_fork(spaces, &fork, time);
}

static uint32_t
image_at(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, uint64_t address)
{
    bool known;
    const struct opd_thread *thread = opd_spaces_thread(spaces, pid, tid, &known);
    const struct opd_mapping *mapping = opd_maps_find(opd_thread_maps(thread), address);
    return mapping == NULL ? 0 : mapping->image;
}

static const char *
comm_of(struct opd_spaces *spaces, uint32_t pid, uint32_t tid)
{
    bool known;
    return opd_thread_comm(opd_spaces_thread(spaces, pid, tid, &known));
}

static void
fork_without_exec_keeps_maps_until_either_changes(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    opd_spaces_comm(spaces, 10, 10, "parent", false, 1);
    map(spaces, 10, 100, 200, 7, 1);
    fork_process(spaces, 20, 10, 2);
    CHECK(image_at(spaces, 20, 20, 150) == 7);
    CHECK(strcmp(comm_of(spaces, 20, 20), "parent") == 0);
    map(spaces, 20, 120, 130, 8, 3);
    CHECK(image_at(spaces, 20, 20, 125) == 8);
    CHECK(image_at(spaces, 20, 20, 130) == 7);
    CHECK(image_at(spaces, 10, 10, 125) == 7);
    opd_spaces_destroy(spaces);
}

static void
exec_starts_an_empty_space_in_the_same_pid(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    map(spaces, 10, 100, 200, 7, 1);
    opd_spaces_comm(spaces, 10, 10, "next", true, 2);
    CHECK(image_at(spaces, 10, 10, 150) == 0);
    map(spaces, 10, 100, 150, 9, 3);
    CHECK(image_at(spaces, 10, 10, 149) == 9);
    CHECK(image_at(spaces, 10, 10, 150) == 0);
    opd_spaces_destroy(spaces);
}

static void
threads_share_and_outlive_the_main_thread(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    opd_spaces_comm(spaces, 10, 10, "main", false, 1);
    map(spaces, 10, 100, 200, 7, 1);
    struct opd_fork fork = {.pid = 10, .tid = 11, .parent_pid = 10, .parent_tid = 10};
    opd_spaces_fork(spaces, &fork, 2);
    opd_spaces_comm(spaces, 10, 11, "worker", false, 3);
    opd_spaces_exit(spaces, 10, 10, 4);
    opd_spaces_expire(spaces, 1000, 10);
    CHECK(image_at(spaces, 10, 11, 150) == 7);
    map(spaces, 10, 300, 400, 8, 1001);
    CHECK(image_at(spaces, 10, 11, 350) == 8);
    CHECK(strcmp(comm_of(spaces, 10, 11), "worker") == 0);
    opd_spaces_destroy(spaces);
}

static void
a_reused_pid_knows_nothing_of_the_old_process(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    opd_spaces_comm(spaces, 1, 1, "init", false, 0);
    map(spaces, 1, 900, 950, 3, 0);
    fork_process(spaces, 10, 1, 1);
    opd_spaces_comm(spaces, 10, 10, "old", true, 1);
    map(spaces, 10, 100, 200, 7, 1);
    opd_spaces_exit(spaces, 10, 10, 2);
    CHECK(image_at(spaces, 10, 10, 150) == 7); // it lingers for its last samples
    fork_process(spaces, 10, 1, 3);
    CHECK(image_at(spaces, 10, 10, 150) == 0);
    CHECK(image_at(spaces, 10, 10, 910) == 3);
    CHECK(strcmp(comm_of(spaces, 10, 10), "init") == 0);
    opd_spaces_destroy(spaces);
}

static void
records_older_than_the_snapshot_only_fill_gaps(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    opd_spaces_snapshot_begin(spaces, 10, 100);
    opd_spaces_snapshot_thread(spaces, 10, 10, "now");
    struct opd_mapping mapping = at(100, 200, 7);
    opd_spaces_snapshot_map(spaces, 10, &mapping);
    map(spaces, 10, 50, 150, 8, 99); // was there before, partly replaced since
    CHECK(image_at(spaces, 10, 10, 120) == 7);
    CHECK(image_at(spaces, 10, 10, 60) == 8);
    opd_spaces_comm(spaces, 10, 10, "before", true, 99);
    CHECK(strcmp(comm_of(spaces, 10, 10), "now") == 0);
    CHECK(image_at(spaces, 10, 10, 120) == 7);
    map(spaces, 10, 50, 150, 9, 101);
    CHECK(image_at(spaces, 10, 10, 120) == 9);
    opd_spaces_destroy(spaces);
}

static void
synthesised_forks_do_not_inherit_maps(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    map(spaces, 1, 100, 200, 7, 0);
    struct opd_fork fork = {.pid = 5, .tid = 5, .parent_pid = 1, .parent_tid = 1, .own_maps = true};
    opd_spaces_fork(spaces, &fork, 0);
    CHECK(image_at(spaces, 5, 5, 150) == 0);
    opd_spaces_destroy(spaces);
}

static void
a_task_without_a_name_is_called_by_its_number(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    CHECK(strcmp(comm_of(spaces, 77, 77), ":77") == 0);
    opd_spaces_destroy(spaces);
}

static void
offsets_follow_the_cuts(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    struct opd_mapping whole = {.start = 0x1000, .end = 0x9000, .offset = 0x100, .image = 7};
    opd_spaces_map(spaces, 1, &whole, 1);
    map(spaces, 1, 0x3000, 0x4000, 8, 2);
    bool known;
    const struct opd_maps *maps = opd_thread_maps(opd_spaces_thread(spaces, 1, 1, &known));
    const struct opd_mapping *after = opd_maps_find(maps, 0x5000);
    CHECK(after->start == 0x4000 && after->offset == 0x3100 && after->end == 0x9000);
    const struct opd_mapping *before = opd_maps_find(maps, 0x2fff);
    CHECK(before->end == 0x3000 && before->offset == 0x100);
    opd_spaces_destroy(spaces);
}

static void
everything_is_bounded_and_counted(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    struct opd_spaces_stats stats;
    int refused = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        struct opd_mapping mapping = at(i * 100ull + 1, i * 100ull + 50, i);
        refused += opd_spaces_map(spaces, 1, &mapping, i) == -ENOSPC;
    }
    for (uint32_t pid = 2; pid < 3000; pid++)
        fork_process(spaces, pid, 1, 1);
    opd_spaces_stats(spaces, &stats);
    CHECK(refused == 100000 - 100);
    CHECK(stats.refused_mappings == 100000 - 100);
    CHECK(stats.processes == 1000);
    CHECK(stats.refused_processes + stats.refused_threads > 0);
    for (uint32_t pid = 2; pid < 3000; pid++)
        opd_spaces_exit(spaces, pid, pid, 10);
    opd_spaces_expire(spaces, 1000, 10);
    opd_spaces_stats(spaces, &stats);
    CHECK(stats.processes == 1 && stats.threads == 1);
    opd_spaces_destroy(spaces);
}

static void
random_changes_match_a_plain_array(void)
{
    enum { SPACE = 512 };
    struct opd_spaces *spaces = opd_spaces_create(
        &(struct opd_spaces_limits){.processes = 8, .threads = 8, .mappings = SPACE});
    uint32_t expected[SPACE] = {0};
    uint64_t state = 12345;
    bool known;
    for (int round = 0; round < 20000; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t start = (state >> 33) % SPACE, length = 1 + (state >> 20) % 64;
        uint64_t end = start + length > SPACE ? SPACE : start + length;
        uint32_t image = (uint32_t)(1 + (state >> 50) % 1000);
        struct opd_mapping mapping = {.start = start, .end = end, .offset = start, .image = image};
        CHECK(opd_spaces_map(spaces, 1, &mapping, 1) == 0);
        for (uint64_t i = start; i < end; i++)
            expected[i] = image;
        if (round % 100 != 0)
            continue;
        const struct opd_maps *maps = opd_thread_maps(opd_spaces_thread(spaces, 1, 1, &known));
        for (uint64_t i = 0; i < SPACE; i++) {
            const struct opd_mapping *found = opd_maps_find(maps, i);
            CHECK((found ? found->image : 0) == expected[i]);
            CHECK(found == NULL || i - found->start + found->offset == i);
        }
    }
    opd_spaces_destroy(spaces);
}

static bool
is_odd(uint32_t pid, uint32_t tid)
{
    CHECK(pid == tid);
    return tid % 2 != 0;
}

static void
a_sweep_lets_go_of_what_ended_without_a_word(void)
{
    struct opd_spaces *spaces = opd_spaces_create(&limits);
    bool known;
    for (uint32_t pid = 1; pid <= 10; pid++)
        opd_spaces_comm(spaces, pid, pid, "x", true, 5);
    opd_spaces_sweep(spaces, 100, is_odd);
    opd_spaces_sweep(spaces, 150, is_odd);
    CHECK(!opd_spaces_lives(spaces, 3) && opd_spaces_lives(spaces, 4));
    // What was on its way when it ended is still told by name, for a while.
    CHECK(opd_spaces_thread(spaces, 3, 3, &known) != NULL && known);
    opd_spaces_expire(spaces, 120, 19);
    struct opd_spaces_stats stats;
    opd_spaces_stats(spaces, &stats);
    CHECK(stats.processes == 5 && stats.threads == 5);
    opd_spaces_destroy(spaces);
}

int
main(void)
{
    RUN(fork_without_exec_keeps_maps_until_either_changes);
    RUN(exec_starts_an_empty_space_in_the_same_pid);
    RUN(threads_share_and_outlive_the_main_thread);
    RUN(a_reused_pid_knows_nothing_of_the_old_process);
    RUN(records_older_than_the_snapshot_only_fill_gaps);
    RUN(synthesised_forks_do_not_inherit_maps);
    RUN(a_task_without_a_name_is_called_by_its_number);
    RUN(offsets_follow_the_cuts);
    RUN(everything_is_bounded_and_counted);
    RUN(random_changes_match_a_plain_array);
    RUN(a_sweep_lets_go_of_what_ended_without_a_word);
    return 0;
}
