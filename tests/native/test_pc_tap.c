// SPDX-License-Identifier: Apache-2.0
// Which samples are counted at which slot: of the kernel, of a file, of one
// event alone, never idle ones; and that a sampler may give its tap back.
#include <errno.h>
#include <string.h>

#include "opd/pc_tap.h"
#include "opd/pipeline.h"
#include "t.h"

#define KERNEL 0xffffffff81000000u
#define CODE 0x401000u

static struct opd_pc_hash *
make_hash(uint64_t length)
{
    const struct opd_pc_options options = {
        .shape = {.slots = 64, .ways = 64}, .cpus = 2, .length = length};
    struct opd_pc_hash *hash = opd_pc_hash_create(&options);
    CHECK(hash != NULL);
    return hash;
}

static struct opd_pipeline *
make_pipeline(void)
{
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    CHECK(pipeline != NULL);
    const struct opd_pipeline_event event = {.period = 5};
    CHECK(opd_pipeline_add_event(pipeline, &event) == 0);
    CHECK(opd_pipeline_add_event(pipeline, &event) == 1);
    return pipeline;
}

static void
feed_map(struct opd_pipeline *pipeline, uint32_t pid, uint64_t inode, const char *path)
{
    struct opd_record record = {.type = OPD_RECORD_MMAP2, .misc = OPD_MISC_USER, .time = 1};
    record.u.mmap.pid = record.u.mmap.tid = pid;
    record.u.mmap.start = 0x7f0000001000;
    record.u.mmap.length = 0x4000;
    record.u.mmap.page_offset = 0x1000;
    record.u.mmap.inode = inode;
    record.u.mmap.executable = true;
    record.u.mmap.path = path;
    record.u.mmap.path_length = strlen(path);
    opd_pipeline_feed(pipeline, 0, &record);
}

static void
sample(struct opd_pipeline *pipeline, unsigned event, uint32_t pid, uint32_t cpu, uint64_t ip)
{
    struct opd_record record = {
        .type = OPD_RECORD_SAMPLE,
        .misc = ip >> 63 ? OPD_MISC_KERNEL : OPD_MISC_USER,
        .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME | OPD_HAS_CPU,
        .pid = pid,
        .tid = pid,
        .cpu = cpu,
        .time = 10,
    };
    record.u.sample.ip = ip;
    opd_pipeline_feed(pipeline, event, &record);
}

static uint32_t slots[64], hits[64];

static void
test_addresses_of_the_kernel(void)
{
    struct opd_pc_hash *hash = make_hash(256);
    struct opd_pc_tap_options options = {
        .hash = hash, .event = 1, .shift = 4, .start = KERNEL, .end = KERNEL + 4096};
    struct opd_pc_tap *tap = opd_pc_tap_create(&options);
    struct opd_pipeline *pipeline = make_pipeline();
    const uint64_t idle = KERNEL + 64, idle_end = KERNEL + 80;
    CHECK(tap != NULL);
    CHECK(opd_pipeline_set_idle(pipeline, &idle, &idle_end, 1) == 0);
    opd_pipeline_set_tap(pipeline, tap);
    sample(pipeline, 1, 7, 0, KERNEL);
    sample(pipeline, 1, 7, 1, KERNEL + 15);
    sample(pipeline, 1, 7, 1, KERNEL + 4095);
    sample(pipeline, 1, 7, 0, KERNEL + 64);   // where the idle task idles, but it is not that
    sample(pipeline, 1, 0, 0, KERNEL + 64);   // idle
    sample(pipeline, 0, 7, 0, KERNEL);        // of another event
    sample(pipeline, 1, 7, 0, KERNEL - 1);    // outside
    sample(pipeline, 1, 7, 0, KERNEL + 4096); // outside
    sample(pipeline, 1, 7, 0, CODE);          // outside
    sample(pipeline, 1, 7, 2, KERNEL);        // a CPU without tables: outside
    CHECK(opd_pc_hash_read(hash, slots, hits, 64) == 3);
    CHECK(slots[0] == 0 && hits[0] == 2 && slots[1] == 4 && hits[1] == 1);
    CHECK(slots[2] == 255 && hits[2] == 1);
    CHECK(opd_pc_tap_outside(tap) == 4);
    opd_pipeline_set_tap(pipeline, NULL);
    sample(pipeline, 1, 7, 0, KERNEL);
    CHECK(opd_pc_hash_read(hash, slots, hits, 64) == 3 && hits[0] == 2);
    opd_pipeline_destroy(pipeline);
    opd_pc_tap_destroy(tap);
    opd_pc_hash_destroy(hash);
}

static void
test_addresses_of_a_file_are_those_in_it(void)
{
    struct opd_pc_hash *hash = make_hash(64);
    struct opd_pc_tap_options options = {
        .hash = hash,
        .shift = 6,
        .start = CODE,
        .end = CODE + 4096,
        .segment_count = 1,
        .segments = {{.offset = 0x1000, .size = 0x800, .address = CODE}},
        .inode = 42,
    };
    struct opd_pc_tap *tap = opd_pc_tap_create(&options);
    struct opd_pipeline *pipeline = make_pipeline();
    CHECK(tap != NULL);
    opd_pipeline_set_tap(pipeline, tap);
    feed_map(pipeline, 7, 42, "/bin/it");
    feed_map(pipeline, 8, 43, "/bin/it"); // called so, but another
    feed_map(pipeline, 9, 42, "/else/it");
    sample(pipeline, 0, 7, 0, 0x7f0000001000);
    sample(pipeline, 0, 9, 0, 0x7f0000001040);
    sample(pipeline, 0, 8, 0, 0x7f0000001000);
    sample(pipeline, 0, 7, 0, 0x7f0000001800); // mapped, but behind the segment's code
    sample(pipeline, 0, 7, 0, KERNEL);
    CHECK(opd_pc_hash_read(hash, slots, hits, 64) == 2);
    CHECK(slots[0] == 0 && hits[0] == 1 && slots[1] == 1 && hits[1] == 1);
    CHECK(opd_pc_tap_outside(tap) == 3);
    opd_pipeline_destroy(pipeline);
    opd_pc_tap_destroy(tap);
    opd_pc_hash_destroy(hash);
}

static void
test_taps_that_cannot_be(void)
{
    struct opd_pc_hash *hash = make_hash(16);
    const struct opd_pc_tap_options good = {.hash = hash, .start = 16, .end = 32};
    struct opd_pc_tap_options bad[] = {good, good, good, good, good};
    bad[0].hash = NULL;
    bad[1].end = 16;
    bad[2].end = 33; // a slot more than there are
    bad[3].shift = 32;
    bad[4].segment_count = OPD_PC_SEGMENTS_MOST + 1;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(opd_pc_tap_create(&bad[i]) == NULL && errno == EINVAL);
    }
    struct opd_pc_tap *tap = opd_pc_tap_create(&good);
    CHECK(tap != NULL && opd_pc_tap_is_kernel(tap));
    opd_pc_tap_destroy(tap);
    opd_pc_hash_destroy(hash);
}

int
main(void)
{
    RUN(test_addresses_of_the_kernel);
    RUN(test_addresses_of_a_file_are_those_in_it);
    RUN(test_taps_that_cannot_be);
    return 0;
}
