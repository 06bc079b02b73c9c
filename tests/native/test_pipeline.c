// SPDX-License-Identifier: Apache-2.0
// From records to packed columns, without a kernel: every way that a sample
// can be attributed, and every limit.
#include <errno.h>
#include <string.h>

#include "opd/pipeline.h"
#include "t.h"

static struct opd_pipeline *
create(bool callchain, uint32_t stack_limit)
{
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    options.callchain = callchain;
    if (stack_limit != 0)
        options.stack_limit = stack_limit;
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    CHECK(pipeline != NULL);
    struct opd_pipeline_event event = {.period = 5};
    CHECK(opd_pipeline_add_event(pipeline, &event) == 0);
    return pipeline;
}

static void
feed_map(struct opd_pipeline *pipeline, uint32_t pid, uint64_t start, uint64_t length,
         uint64_t offset, const char *path, uint64_t time)
{
    struct opd_record record = {.type = OPD_RECORD_MMAP2, .misc = OPD_MISC_USER, .time = time};
    record.u.mmap.pid = record.u.mmap.tid = pid;
    record.u.mmap.start = start;
    record.u.mmap.length = length;
    record.u.mmap.page_offset = offset;
    record.u.mmap.inode = 42;
    record.u.mmap.executable = true;
    record.u.mmap.path = path;
    record.u.mmap.path_length = strlen(path);
    opd_pipeline_feed(pipeline, 0, &record);
}

static void
feed_comm(struct opd_pipeline *pipeline, uint32_t pid, const char *comm, uint64_t time)
{
    struct opd_record record = {.type = OPD_RECORD_COMM, .time = time};
    record.u.comm.pid = record.u.comm.tid = pid;
    record.u.comm.comm = comm;
    record.u.comm.comm_length = strlen(comm);
    opd_pipeline_feed(pipeline, 0, &record);
}

static void
feed_sample(struct opd_pipeline *pipeline, uint32_t pid, unsigned mode, uint64_t ip,
            const uint64_t *chain, size_t length, uint64_t time)
{
    struct opd_record record = {
        .type = OPD_RECORD_SAMPLE,
        .misc = (uint16_t)mode,
        .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME | OPD_HAS_PERIOD | OPD_HAS_CALLCHAIN,
        .pid = pid,
        .tid = pid,
        .time = time,
    };
    record.u.sample.ip = ip;
    record.u.sample.period = 100;
    record.u.sample.chain = chain;
    record.u.sample.chain_length = length;
    opd_pipeline_feed(pipeline, 0, &record);
}

static struct opd_window *
take(struct opd_pipeline *pipeline)
{
    struct opd_window *window = NULL;
    CHECK(opd_pipeline_take_here(pipeline, &window) == 0);
    return window;
}

static void
each_sample_weighs_what_was_set_at_its_time(void)
{
    struct opd_pipeline *pipeline = create(false, 0);
    // All changes are told before the first sample is looked at: the drain may lag.
    opd_pipeline_set_period(pipeline, 0, 1000, 20);
    opd_pipeline_set_period(pipeline, 0, 10, 30);
    for (uint64_t time = 15; time <= 35; time += 5)
        feed_sample(pipeline, 9, OPD_MISC_USER, 0x400100, NULL, 0, time);
    struct opd_window *window = take(pipeline);
    CHECK(window->rows == 1 && window->row_hits[0] == 5);
    CHECK(window->row_weight[0] == 100 + 2 * 1000 + 2 * 10); // the first says its own
    opd_window_free(window);
    // More than can lie ahead: the oldest are taken to have come.
    for (uint64_t i = 0; i < 20; i++)
        opd_pipeline_set_period(pipeline, 0, 1 + i, 100 + i);
    for (uint64_t i = 0; i < 20; i++)
        feed_sample(pipeline, 9, OPD_MISC_USER, 0x400100, NULL, 0, 100 + i);
    window = take(pipeline);
    CHECK(window->rows == 1 && window->row_hits[0] == 20);
    CHECK(window->row_weight[0] == 12 * 12 + 13 + 14 + 15 + 16 + 17 + 18 + 19 + 20);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
a_chain_becomes_frames_of_images_leaf_first(void)
{
    struct opd_pipeline *pipeline = create(true, 0);
    struct opd_image images[16];
    feed_comm(pipeline, 9, "demo", 1);
    feed_map(pipeline, 9, 0x400000, 0x1000, 0x2000, "/bin/demo", 2);
    const uint64_t chain[] = {OPD_CONTEXT_KERNEL,
                              0xffffffff81000010,
                              0xffffffff81000020,
                              OPD_CONTEXT_USER,
                              0x400100,
                              0x400200,
                              0x99};
    feed_sample(pipeline, 9, OPD_MISC_KERNEL, 0xffffffff81000010, chain, 7, 3);
    feed_sample(pipeline, 9, OPD_MISC_KERNEL, 0xffffffff81000010, chain, 7, 4);
    struct opd_window *window = take(pipeline);
    CHECK(window->rows == 1 && window->row_hits[0] == 2 && window->row_weight[0] == 200);
    CHECK(window->sfiles == 1 && window->sfile_mode[0] == 1 && window->sfile_tgid[0] == 9);
    CHECK(window->sfile_tid[0] == -1 && window->sfile_cpu[0] == -1);
    CHECK(strcmp(window->sfile_comm, "demo") == 0);
    CHECK(window->sfile_image[0] == OPD_UID_KERNEL);
    CHECK(window->stacks == 1 && window->stack_start[1] == 5);
    CHECK(window->stack_flags[0] == (2 | 4));
    CHECK(window->frame_image[0] == OPD_UID_KERNEL);
    CHECK(window->frame_address[0] == 0xffffffff81000010);
    CHECK(window->frame_address[2] == 0x2100 && window->frame_address[3] == 0x2200);
    CHECK(window->frame_image[4] == OPD_UID_UNKNOWN && window->frame_address[4] == 0);
    CHECK(window->counts.unwind_failed == 2);
    size_t count = opd_pipeline_images(pipeline, images, 16);
    CHECK(count == 6 && images[5].uid == window->frame_image[2]);
    CHECK(strcmp(images[5].path, "/bin/demo") == 0 && images[5].inode == 42);
    for (size_t i = 0; i < count; i++)
        opd_image_release(&images[i]);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
a_remapped_address_is_attributed_by_its_time(void)
{
    struct opd_pipeline *pipeline = create(false, 0);
    feed_map(pipeline, 9, 0x1000, 0x1000, 0, "/one", 1);
    feed_sample(pipeline, 9, OPD_MISC_USER, 0x1500, NULL, 0, 2);
    feed_map(pipeline, 9, 0x1000, 0x1000, 0, "/two", 3);
    feed_sample(pipeline, 9, OPD_MISC_USER, 0x1500, NULL, 0, 4);
    struct opd_window *window = take(pipeline);
    CHECK(window->rows == 2 && window->sfile_image[0] != window->sfile_image[1]);
    CHECK(strcmp(window->sfile_comm, ":9") == 0);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
pid_0_is_swapper_and_idle_functions_count_apart(void)
{
    struct opd_pipeline *pipeline = create(false, 0);
    const uint64_t starts[] = {0xffffffff81000100, 0xffffffff81000300};
    const uint64_t ends[] = {0xffffffff81000200, 0xffffffff81000400};
    CHECK(opd_pipeline_set_idle(pipeline, starts, ends, 2) == 0);
    feed_sample(pipeline, 0, OPD_MISC_KERNEL, 0xffffffff81000100, NULL, 0, 1);
    feed_sample(pipeline, 0, OPD_MISC_KERNEL, 0xffffffff810003ff, NULL, 0, 1);
    feed_sample(pipeline, 0, OPD_MISC_KERNEL, 0xffffffff81000200, NULL, 0, 1); // irq work
    feed_sample(pipeline, 7, OPD_MISC_KERNEL, 0xffffffff81000100, NULL, 0, 1); // not pid 0
    struct opd_window *window = take(pipeline);
    CHECK(window->counts.idle == 2 && window->counts.samples == 2);
    CHECK(strcmp(window->sfile_comm, "swapper") == 0);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
kernel_addresses_fall_to_modules_and_bpf_programs(void)
{
    struct opd_pipeline *pipeline = create(false, 0);
    struct opd_image images[16];
    CHECK(opd_pipeline_add_module(pipeline, "nf_tables", 0xffffffffc0000000, 0xffffffffc0001000) ==
          0);
    struct opd_record record = {.type = OPD_RECORD_KSYMBOL, .time = 1};
    record.u.ksymbol.address = 0xffffffffc0002000;
    record.u.ksymbol.length = 0x100;
    record.u.ksymbol.kind = 1;
    record.u.ksymbol.name = "bpf_prog_x";
    opd_pipeline_feed(pipeline, 0, &record);
    feed_sample(pipeline, 5, OPD_MISC_KERNEL, 0xffffffffc0000010, NULL, 0, 2);
    feed_sample(pipeline, 5, OPD_MISC_KERNEL, 0xffffffffc0002010, NULL, 0, 2);
    record.u.ksymbol.flags = 1; // unloaded: the addresses are anybody's again
    record.time = 3;
    opd_pipeline_feed(pipeline, 0, &record);
    feed_sample(pipeline, 5, OPD_MISC_KERNEL, 0xffffffffc0002010, NULL, 0, 4);
    struct opd_window *window = take(pipeline);
    size_t count = opd_pipeline_images(pipeline, images, 16);
    CHECK(count == 7 && window->rows == 3);
    CHECK(images[5].kind == OPD_IMAGE_MODULE && strcmp(images[5].path, "[nf_tables]") == 0);
    CHECK(images[6].kind == OPD_IMAGE_BPF && strcmp(images[6].symbol, "bpf_prog_x") == 0);
    CHECK(window->sfile_image[0] == images[5].uid && window->sfile_image[1] == images[6].uid);
    CHECK(window->sfile_image[2] == OPD_UID_KERNEL);
    for (size_t i = 0; i < count; i++)
        opd_image_release(&images[i]);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
distinct_stacks_without_end_cost_depth_and_not_samples(void)
{
    struct opd_pipeline *pipeline = create(true, 800);
    feed_map(pipeline, 9, 0x1000, 0x100000000, 0, "/one", 1);
    for (uint64_t i = 0; i < 100000; i++) {
        const uint64_t chain[] = {OPD_CONTEXT_USER, 0x2000 + i % 50, 0x3000 + i, 0x4000 + i};
        feed_sample(pipeline, 9, OPD_MISC_USER, 0x2000 + i % 50, chain, 4, i + 2);
    }
    struct opd_window *window = take(pipeline);
    uint64_t hits = 0;
    for (uint32_t i = 0; i < window->rows; i++)
        hits += window->row_hits[i];
    CHECK(hits == 100000 && window->counts.samples == 100000 && window->counts.hash_full == 0);
    CHECK(window->stacks <= 800);
    CHECK(window->counts.stack_truncated == 100000 - 700);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
callers_that_are_data_are_one_break_in_the_chain(void)
{
    struct opd_pipeline *pipeline = create(true, 0);
    feed_map(pipeline, 9, 0x1000, 0x100000, 0, "/one", 1);
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t chain[] = {OPD_CONTEXT_USER,     0x2000, 0x7000000000 + i * 8,
                                  0x7100000000 + i * 8, 0x3000, 0x7200000000 + i * 8};
        feed_sample(pipeline, 9, OPD_MISC_USER, 0x2000, chain, 6, i + 2);
    }
    // A leaf keeps its address: it may be code that nobody told of.
    feed_sample(pipeline, 9, OPD_MISC_USER, 0x7300000008, NULL, 0, 2000);
    struct opd_window *window = take(pipeline);
    CHECK(window->stacks == 2 && window->rows == 2 && window->counts.samples == 1001);
    CHECK(window->counts.unwind_failed == 1001 && window->counts.no_mapping == 1);
    CHECK(window->stack_start[1] == 4);
    CHECK(window->frame_address[0] == 0x2000 - 0x1000);
    CHECK(window->frame_image[1] == OPD_UID_UNKNOWN && window->frame_address[1] == 0);
    CHECK(window->frame_address[2] == 0x3000 - 0x1000);
    CHECK(window->frame_image[3] == OPD_UID_UNKNOWN && window->frame_address[3] == 0);
    CHECK(window->frame_address[4] == 0x7300000008);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
hits_in_are_hits_out_over_many_windows(void)
{
    struct opd_pipeline *pipeline = create(false, 0);
    uint64_t in = 0, out = 0, weight = 0, state = 1;
    feed_map(pipeline, 9, 0x1000, 0x100000000, 0, "/one", 1);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 20000; i++, in++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            feed_sample(pipeline, 9, OPD_MISC_USER, 0x1000 + (state >> 40) % 5000, NULL, 0, in + 2);
        }
        struct opd_window *window = take(pipeline);
        for (uint32_t i = 0; i < window->rows; i++) {
            out += window->row_hits[i];
            weight += window->row_weight[i];
        }
        opd_window_free(window);
    }
    CHECK(in == out && weight == in * 100);
    opd_pipeline_destroy(pipeline);
}

static void
a_multiplexed_event_is_scaled(void)
{
    struct opd_pipeline *pipeline = create(false, 0);
    feed_sample(pipeline, 9, OPD_MISC_USER, 0x1500, NULL, 0, 2);
    struct opd_window *window = take(pipeline);
    opd_window_scale(window, 0, 2.5);
    CHECK(window->row_weight[0] == 250);
    opd_window_scale(window, 1, 9);
    CHECK(window->row_weight[0] == 250);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
only_names_that_match_are_counted(void)
{
    struct opd_pipeline *pipeline = create(true, 0);
    CHECK(opd_pipeline_add_filter(pipeline, "ngin*") == 0);
    CHECK(opd_pipeline_add_filter(pipeline, "[ab]?") == 0);
    const char *comms[] = {"nginx", "engine", "b1", "b12", "fifteen-letters", "ngin"};
    for (uint32_t i = 0; i < 6; i++) {
        feed_comm(pipeline, 100 + i, comms[i], 1);
        for (unsigned j = 0; j < 3; j++)
            feed_sample(pipeline, 100 + i, OPD_MISC_USER, 0x1000, NULL, 0, 2 + j);
    }
    // A thread of another name, of a process whose first thread is asked for.
    struct opd_record thread = {.type = OPD_RECORD_COMM, .time = 9};
    thread.u.comm.pid = 100;
    thread.u.comm.tid = 200;
    thread.u.comm.comm = "worker";
    thread.u.comm.comm_length = 6;
    opd_pipeline_feed(pipeline, 0, &thread);
    struct opd_record sample = {.type = OPD_RECORD_SAMPLE,
                                .misc = OPD_MISC_USER,
                                .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME,
                                .pid = 100,
                                .tid = 200,
                                .time = 10};
    opd_pipeline_feed(pipeline, 0, &sample);
    feed_sample(pipeline, 0, OPD_MISC_KERNEL, 0xffffffff81000000, NULL, 0, 11);
    feed_comm(pipeline, 101, "nginx", 12); // renamed: asked for from now on
    feed_sample(pipeline, 101, OPD_MISC_USER, 0x1000, NULL, 0, 13);
    struct opd_window *window;
    CHECK(opd_pipeline_take_here(pipeline, &window) == 0);
    CHECK(window->counts.samples == 3 * 3 + 2);
    CHECK(window->counts.filtered == 3 * 3 + 1);
    opd_window_free(window);
    while (opd_pipeline_add_filter(pipeline, "x") == 0)
        continue;
    CHECK(opd_pipeline_add_filter(pipeline, "x") == -ENOSPC);
    opd_pipeline_destroy(pipeline);
}

int
main(void)
{
    RUN(each_sample_weighs_what_was_set_at_its_time);
    RUN(a_chain_becomes_frames_of_images_leaf_first);
    RUN(a_remapped_address_is_attributed_by_its_time);
    RUN(pid_0_is_swapper_and_idle_functions_count_apart);
    RUN(kernel_addresses_fall_to_modules_and_bpf_programs);
    RUN(distinct_stacks_without_end_cost_depth_and_not_samples);
    RUN(callers_that_are_data_are_one_break_in_the_chain);
    RUN(hits_in_are_hits_out_over_many_windows);
    RUN(a_multiplexed_event_is_scaled);
    RUN(only_names_that_match_are_counted);
    return 0;
}
