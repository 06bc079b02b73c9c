// SPDX-License-Identifier: Apache-2.0
// A whole recording through the whole pipeline: parser, order, address
// spaces, images, stacks, hash, and the window that comes out.
#include <stdlib.h>

#include "opd/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
