// SPDX-License-Identifier: Apache-2.0
// The end of a window: the swap, and the finished tables as packed columns.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

static void
mark_image(void *context, uint32_t image)
{
    opd_images_mark(context, image);
}

// Frees image entries that no process maps any more, once the table is three
// quarters full. A number in a window being packed stays valid: the reader
// was told of the image before, and numbers are not reused.
static void
recycle_images(struct opd_pipeline *pipeline)
{
    struct opd_images_stats stats;
    pthread_mutex_lock(&pipeline->image_lock);
    opd_images_stats(pipeline->images, &stats);
    if (stats.live > stats.limit - stats.limit / 4) {
        opd_images_mark_begin(pipeline->images);
        opd_spaces_each_image(pipeline->spaces, mark_image, pipeline->images);
        for (uint32_t i = 0; pipeline->kernel_maps != NULL && i < pipeline->kernel_maps->count; i++)
            opd_images_mark(pipeline->images, pipeline->kernel_maps->items[i].image);
        opd_images_sweep(pipeline->images);
    }
    pthread_mutex_unlock(&pipeline->image_lock);
}

// The same for cgroups, of those that no process is in any more.
static void
recycle_cgroups(struct opd_pipeline *pipeline)
{
    opd_cgroups_turn(pipeline->cgroups);
    if (!opd_cgroups_is_full(pipeline->cgroups))
        return;
    size_t room = opd_spaces_cgroups(pipeline->spaces, NULL, 0);
    uint32_t *used = malloc((room + 1) * sizeof *used);
    if (used == NULL)
        return; // at the next window
    opd_cgroups_sweep(pipeline->cgroups, used, opd_spaces_cgroups(pipeline->spaces, used, room));
    free(used);
}

void
opd_pipeline_poll(struct opd_pipeline *pipeline)
{
    if (!opd_hash_pair_asked(pipeline->pair))
        return;
    // The companions change over before the pair does: whoever waits for the
    // pair then finds all three tables finished.
    pipeline->active ^= 1;
    pipeline->window++;
    opd_hash_pair_poll(pipeline->pair);
    recycle_images(pipeline);
    recycle_cgroups(pipeline);
}

static size_t
align8(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

// One allocation for the struct and all its columns.
static struct opd_window *
window_alloc(uint32_t rows, uint32_t sfiles, uint32_t stacks, uint32_t frames, uint32_t events,
             uint32_t ibs_sources)
{
    struct opd_window *window = NULL;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = align8(sizeof *window);
        char *base = (char *)window;
#define COLUMN(name, count)                                                                        \
    do {                                                                                           \
        if (base != NULL)                                                                          \
            window->name = (void *)(base + at);                                                    \
        at += align8(sizeof *window->name * (size_t)(count));                                      \
    } while (0)
        COLUMN(row_sfile, rows);
        COLUMN(row_stack, rows);
        COLUMN(row_hits, rows);
        COLUMN(row_weight, rows);
        COLUMN(sfile_event, sfiles);
        COLUMN(sfile_mode, sfiles);
        COLUMN(sfile_tgid, sfiles);
        COLUMN(sfile_tid, sfiles);
        COLUMN(sfile_cpu, sfiles);
        COLUMN(sfile_image, sfiles);
        COLUMN(sfile_cgroup, sfiles);
        COLUMN(sfile_comm, (size_t)sfiles * OPD_COMM_SIZE);
        COLUMN(stack_start, (size_t)stacks + 1);
        COLUMN(stack_flags, stacks);
        COLUMN(frame_image, frames);
        COLUMN(frame_address, frames);
        COLUMN(event_counts, events);
        COLUMN(ibs_event, ibs_sources);
        COLUMN(ibs_counts, ibs_sources);
#undef COLUMN
        if (pass == 0) {
            window = malloc(at);
            if (window == NULL)
                return NULL;
        }
    }
    window->rows = rows;
    window->sfiles = sfiles;
    window->stacks = stacks;
    window->frames = frames;
    window->ibs_sources = ibs_sources;
    window->events = events;
    return window;
}

static void
pack_sfiles(struct opd_window *window, const struct opd_intern *sfiles)
{
    for (uint32_t i = 0; i < window->sfiles; i++) {
        uint32_t length;
        const struct opd_sfile_key *key = opd_intern_get(sfiles, i, &length);
        window->sfile_event[i] = key->event;
        window->sfile_mode[i] = key->mode;
        window->sfile_tgid[i] = key->tgid;
        window->sfile_tid[i] = key->tid;
        window->sfile_cpu[i] = key->cpu;
        window->sfile_image[i] = key->image;
        window->sfile_cgroup[i] = key->cgroup;
        memcpy(window->sfile_comm + (size_t)i * OPD_COMM_SIZE, key->comm, OPD_COMM_SIZE);
    }
}

static void
pack_stacks(struct opd_window *window, const struct opd_intern *stacks)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < window->stacks; i++) {
        uint32_t length;
        const uint32_t *words = opd_intern_get(stacks, i, &length);
        const struct opd_frame *frames = (const struct opd_frame *)(words + 1);
        uint32_t count = (length - 4) / (uint32_t)sizeof *frames;
        window->stack_start[i] = at;
        window->stack_flags[i] = (uint8_t)words[0];
        for (uint32_t j = 0; j < count; j++, at++) {
            window->frame_image[at] = frames[j].image;
            window->frame_address[at] =
                (uint64_t)frames[j].address_high << 32 | frames[j].address_low;
        }
    }
    window->stack_start[window->stacks] = at;
}

static void
pack_ibs(const struct opd_pipeline *pipeline, struct opd_window *window, struct opd_tables *tables)
{
    for (uint32_t i = 0; i < window->ibs_sources; i++) {
        window->ibs_event[i] = pipeline->ibs_event[i];
        window->ibs_counts[i] = tables->ibs[i];
    }
    memset(tables->ibs, 0, sizeof tables->ibs);
}

static void
pack_counts(struct opd_window *window, struct opd_tables *tables)
{
    struct opd_window_counts *sum = &tables->counts;
    for (uint32_t i = 0; i < window->events; i++) {
        const struct opd_event_counts *event = &tables->events[i];
        window->event_counts[i] = *event;
        sum->samples += event->samples;
        sum->hash_full += event->hash_full;
        sum->no_mapping += event->no_mapping;
        sum->stack_truncated += event->stack_truncated;
        sum->unwind_failed += event->unwind_failed;
        sum->inexact_ip += event->inexact_ip;
        sum->label_unknown += event->label_unknown;
        sum->label_inherited += event->label_inherited;
        sum->label_read += event->label_read;
        sum->label_exact += event->label_exact;
    }
    window->counts = *sum;
    memset(sum, 0, sizeof *sum);
    memset(tables->events, 0, sizeof *tables->events * window->events);
}

// Packs and empties the finished tables, which are the reader's until it asks
// for the next swap.
static int
pack(const struct opd_pipeline *pipeline, struct opd_profile_hash *hash, struct opd_tables *tables,
     struct opd_window **out)
{
    size_t bound = opd_profile_hash_bound(hash);
    struct opd_hash_entry *entries = malloc((bound + 1) * sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    uint32_t stacks = opd_intern_count(tables->stacks);
    uint32_t frames = (uint32_t)((opd_intern_bytes(tables->stacks) - 4 * (size_t)stacks) /
                                 sizeof(struct opd_frame));
    // Room for the bound first: the tables are only emptied when nothing can
    // fail any more.
    struct opd_window *window =
        window_alloc((uint32_t)bound, opd_intern_count(tables->sfiles), stacks, frames,
                     pipeline->event_count, pipeline->ibs_count);
    if (window == NULL) {
        free(entries);
        return -ENOMEM;
    }
    window->payload = NULL;
    if (tables->payload != NULL && opd_payload_take(tables->payload, &window->payload) != 0) {
        free(entries);
        free(window);
        return -ENOMEM;
    }
    window->rows = (uint32_t)opd_profile_hash_take(hash, entries);
    for (uint32_t i = 0; i < window->rows; i++) {
        window->row_sfile[i] = entries[i].sfile;
        window->row_stack[i] = entries[i].stack;
        window->row_hits[i] = entries[i].hits;
        window->row_weight[i] = entries[i].weight;
    }
    free(entries);
    pack_sfiles(window, tables->sfiles);
    pack_stacks(window, tables->stacks);
    pack_counts(window, tables);
    pack_ibs(pipeline, window, tables);
    opd_intern_reset(tables->stacks);
    opd_intern_reset(tables->sfiles);
    *out = window;
    return 0;
}

int
opd_pipeline_take(struct opd_pipeline *pipeline, int timeout_ms, struct opd_window **window)
{
    struct opd_profile_hash *finished;
    int rc = opd_hash_pair_request(pipeline->pair, timeout_ms, &finished);
    if (rc != 0)
        return rc;
    // `active` changed before the pair did; the request's completion orders it.
    return pack(pipeline, finished, &pipeline->tables[pipeline->active ^ 1], window);
}

int
opd_pipeline_take_here(struct opd_pipeline *pipeline, struct opd_window **window)
{
    int rc = opd_pipeline_take(pipeline, 0, window);
    if (rc != -ETIMEDOUT)
        return rc;
    opd_pipeline_poll(pipeline);
    return opd_pipeline_take(pipeline, 0, window);
}

void
opd_window_free(struct opd_window *window)
{
    if (window != NULL)
        opd_payload_free(window->payload);
    free(window);
}

void
opd_window_scale(struct opd_window *window, unsigned event, double ratio)
{
    for (uint32_t i = 0; i < window->rows; i++)
        if (window->sfile_event[window->row_sfile[i]] == event)
            window->row_weight[i] = (uint64_t)((double)window->row_weight[i] * ratio + 0.5);
}

bool
opd_pipeline_has_news(struct opd_pipeline *pipeline)
{
    pthread_mutex_lock(&pipeline->image_lock);
    bool images = opd_images_waiting(pipeline->images);
    pthread_mutex_unlock(&pipeline->image_lock);
    return images || opd_cgroups_waiting(pipeline->cgroups);
}

size_t
opd_pipeline_images(struct opd_pipeline *pipeline, struct opd_image *out, size_t room)
{
    pthread_mutex_lock(&pipeline->image_lock);
    size_t count = opd_images_take(pipeline->images, out, room);
    pthread_mutex_unlock(&pipeline->image_lock);
    return count;
}

size_t
opd_pipeline_cgroups(struct opd_pipeline *pipeline, struct opd_cgroup *out, size_t room)
{
    return opd_cgroups_take(pipeline->cgroups, out, room);
}
