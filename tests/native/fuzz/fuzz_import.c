// SPDX-License-Identifier: Apache-2.0
// A whole recording through the whole pipeline: parser, order, address
// spaces, images, stacks, hash, and the window that comes out.
#include <stdlib.h>

#include "opd/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_places(const struct opd_window *window, const uint32_t *sfile, const uint32_t *stack,
             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (sfile[i] >= window->sfiles || stack[i] >= window->stacks)
            abort();
}

// What is kept beside the rows names what the window has, and adds up to what was offered.
static void
check_payload(const struct opd_window *window)
{
    const struct opd_payload_columns *kept = window->payload;
    uint64_t latencies = kept->latency.lost, accesses = 0, branches = kept->branch.lost;
    check_places(window, kept->latency_sfile, kept->latency_stack, kept->latencies);
    check_places(window, kept->access_sfile, kept->access_stack, kept->accesses);
    check_places(window, kept->branch_sfile, kept->branch_from, kept->branches);
    check_places(window, kept->branch_sfile, kept->branch_to, kept->branches);
    check_places(window, kept->record_sfile, kept->record_stack,
                 kept->records[0] + kept->records[1]);
    for (uint32_t i = 0; i < kept->latencies; i++)
        latencies += kept->latency_count[i];
    for (uint32_t i = 0; i < kept->totals; i++)
        accesses += kept->total_count[i];
    for (uint32_t i = 0; i < kept->branches; i++)
        branches += kept->branch_count[i];
    if (latencies != kept->latency.offered || accesses != kept->access.offered ||
        branches != kept->branch.offered)
        abort();
    if (kept->accesses > kept->access.offered || kept->records[0] > kept->record[0].offered ||
        kept->records[1] > kept->record[1].offered)
        abort();
}

static void
check_window(const struct opd_window *window)
{
    uint64_t hits = 0;
    for (uint32_t i = 0; i < window->rows; i++) {
        if (window->row_sfile[i] >= window->sfiles || window->row_stack[i] >= window->stacks)
            abort();
        hits += window->row_hits[i];
    }
    if (hits != window->counts.samples || window->stack_start[window->stacks] != window->frames)
        abort();
    check_payload(window);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    options.keep_idle = true;
    options.separate_thread = options.separate_cpu = size % 2;
    options.hash_buckets = 16;
    options.image_limit = 64;
    options.spaces = (struct opd_spaces_limits){.processes = 64, .threads = 64, .mappings = 64};
    options.stack_limit = 64;
    options.sfile_limit = 64;
    options.payload = (struct opd_payload_limits){
        .latencies = 8, .accesses = 4, .branches = 4, .records = 2 + size % 2};

    struct opd_perfdata *file;
    const char *reason;
    if (opd_perfdata_open_memory(data, size, &file, &reason) != 0)
        return 0;
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    struct opd_import *import = opd_import_create(file, pipeline);
    uint64_t next = 0, until = 0;
    int rc = 0, windows = 0;
    while ((rc = opd_import_feed(import, until, &next)) == 1 && windows++ < 50) {
        struct opd_window *window;
        if (opd_pipeline_take_here(pipeline, &window) != 0)
            abort();
        check_window(window);
        opd_window_free(window);
        until = next + 1000000;
        if (until < next)
            break;
    }
    struct opd_window *window;
    if (opd_pipeline_take_here(pipeline, &window) == 0) {
        check_window(window);
        opd_window_free(window);
    }
    struct opd_image images[8];
    size_t count;
    while ((count = opd_pipeline_images(pipeline, images, 8)) > 0)
        for (size_t i = 0; i < count; i++)
            opd_image_release(&images[i]);
    opd_import_destroy(import);
    opd_pipeline_destroy(pipeline);
    opd_perfdata_close(file);
    return 0;
}
