// SPDX-License-Identifier: Apache-2.0
#include "pipeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "filter.h"
#include "opd/procfs.h"

#define LINGER_NS 2000000000u // samples of a task come after its EXIT
#define EXPIRE_EVERY_NS 500000000u
#define FORK_OWN_MAPS (1u << 13) // PERF_RECORD_MISC_FORK_EXEC

void
opd_pipeline_defaults(struct opd_pipeline_options *options)
{
    *options = (struct opd_pipeline_options){
        .callchain = true,
        .stack_depth = 127,
        .hash_buckets = 4096,
        .hash_limit = 1u << 20,
        .stack_limit = 1u << 18,
        .stack_bytes = 64u << 20,
        .sfile_limit = 1u << 17,
        .image_limit = 1u << 16,
        .cgroup_limit = 1u << 14,
        .spaces = {.processes = 1u << 17, .threads = 1u << 18, .mappings = 8192},
    };
}

static bool
keeps_payload(const struct opd_pipeline_options *options)
{
    const struct opd_payload_limits *limits = &options->payload;
    return (limits->latencies | limits->accesses | limits->branches | limits->records) != 0;
}

struct opd_pipeline *
opd_pipeline_create(const struct opd_pipeline_options *options)
{
    struct opd_pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (pipeline == NULL)
        return NULL;
    // Recursive: a snapshot's pauses may have to attribute records.
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&pipeline->image_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pipeline->options = *options;
    pipeline->window = 1;
    pipeline->stack_divisor = 1;
    pipeline->spaces = opd_spaces_create(&options->spaces);
    pipeline->images = opd_images_create(options->image_limit);
    pipeline->pair = opd_hash_pair_create(options->hash_buckets, options->hash_limit);
    pipeline->cgroups = opd_cgroups_create(options->cgroup_limit);
    bool complete = pipeline->spaces && pipeline->images && pipeline->pair && pipeline->cgroups;
    if (options->proc_root != NULL) {
        pipeline->proc_root = strdup(options->proc_root);
        pipeline->hierarchy = opd_hierarchy_open(options->proc_root);
        if (pipeline->hierarchy != NULL && pipeline->cgroups != NULL)
            opd_cgroups_set_id(pipeline->cgroups, opd_hierarchy_root(pipeline->hierarchy), "/");
        complete = complete && pipeline->proc_root;
    }
    for (int i = 0; i < 2; i++) {
        struct opd_tables *tables = &pipeline->tables[i];
        tables->stacks = opd_intern_create(options->stack_limit, options->stack_bytes);
        tables->sfiles = opd_intern_create(options->sfile_limit,
                                           options->sfile_limit * sizeof(struct opd_sfile_key));
        complete = complete && tables->stacks && tables->sfiles;
        if (keeps_payload(options)) {
            tables->payload = opd_payload_create(&options->payload);
            complete = complete && tables->payload;
        }
    }
    if (!complete) {
        opd_pipeline_destroy(pipeline);
        errno = ENOMEM;
        return NULL;
    }
    return pipeline;
}

void
opd_pipeline_destroy(struct opd_pipeline *pipeline)
{
    if (pipeline == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        opd_intern_destroy(pipeline->tables[i].stacks);
        opd_intern_destroy(pipeline->tables[i].sfiles);
        opd_payload_destroy(pipeline->tables[i].payload);
    }
    for (size_t i = 0; i < pipeline->build_id_count; i++)
        free(pipeline->build_ids[i].path);
    free(pipeline->build_ids);
    opd_hash_pair_destroy(pipeline->pair);
    opd_spaces_destroy(pipeline->spaces);
    opd_images_destroy(pipeline->images);
    opd_cgroups_destroy(pipeline->cgroups);
    opd_hierarchy_close(pipeline->hierarchy);
    opd_maps_drop(pipeline->kernel_maps);
    opd_filter_free(pipeline->filter);
    free(pipeline->idle_starts);
    free(pipeline->idle_ends);
    free(pipeline->proc_root);
    for (unsigned i = 0; i < pipeline->ibs_count; i++)
        free(pipeline->ibs[i]);
    pthread_mutex_destroy(&pipeline->image_lock);
    free(pipeline);
}

int
opd_pipeline_add_event(struct opd_pipeline *pipeline, const struct opd_pipeline_event *event)
{
    if (pipeline->event_count >= OPD_EVENTS_MAX)
        return -ENOSPC;
    pipeline->events[pipeline->event_count] = *event;
    pipeline->weights[pipeline->event_count] = (struct opd_weight){.period = event->period};
    return (int)pipeline->event_count++;
}

void
opd_pipeline_set_period(struct opd_pipeline *pipeline, unsigned event, uint64_t period,
                        uint64_t since)
{
    struct opd_weight *weight = &pipeline->weights[event];
    if (weight->ahead_count == OPD_WEIGHTS_AHEAD) // few records can be older than that
        opd_weight_step(weight);
    weight->ahead[weight->ahead_count].period = period;
    weight->ahead[weight->ahead_count].since = since;
    weight->ahead_count++;
}

int
opd_pipeline_add_filter(struct opd_pipeline *pipeline, const char *comm_glob)
{
    return opd_filter_add(&pipeline->filter, comm_glob);
}

uint32_t
opd_pipeline_limit_stacks(struct opd_pipeline *pipeline, uint32_t divisor)
{
    pipeline->stack_divisor = divisor;
    return pipeline->options.stack_limit / divisor;
}

static void
raise_to(uint32_t *limit, uint32_t least)
{
    *limit = *limit > least ? *limit : least;
}

int
opd_pipeline_keep(struct opd_pipeline *pipeline, const struct opd_payload_limits *limits)
{
    struct opd_payload_limits *own = &pipeline->options.payload;
    raise_to(&own->latencies, limits->latencies);
    raise_to(&own->accesses, limits->accesses);
    raise_to(&own->branches, limits->branches);
    raise_to(&own->records, limits->records);
    for (int i = 0; i < 2 && keeps_payload(&pipeline->options); i++) {
        struct opd_payload *payload = opd_payload_create(own);
        if (payload == NULL)
            return -ENOMEM;
        opd_payload_destroy(pipeline->tables[i].payload);
        pipeline->tables[i].payload = payload;
    }
    return 0;
}

void
opd_pipeline_measure(struct opd_pipeline *pipeline, uint64_t *hash_ticks)
{
    pipeline->hash_ticks = hash_ticks;
}

int
opd_pipeline_set_idle(struct opd_pipeline *pipeline, const uint64_t *starts, const uint64_t *ends,
                      size_t count)
{
    uint64_t *own_starts = malloc((count + 1) * sizeof *own_starts);
    uint64_t *own_ends = malloc((count + 1) * sizeof *own_ends);
    if (own_starts == NULL || own_ends == NULL) {
        free(own_starts);
        free(own_ends);
        return -ENOMEM;
    }
    memcpy(own_starts, starts, count * sizeof *starts);
    memcpy(own_ends, ends, count * sizeof *ends);
    free(pipeline->idle_starts);
    free(pipeline->idle_ends);
    pipeline->idle_starts = own_starts;
    pipeline->idle_ends = own_ends;
    pipeline->idle_count = count;
    return 0;
}

static void
expire(struct opd_pipeline *pipeline, uint64_t now)
{
    if (now <= pipeline->last_expire + EXPIRE_EVERY_NS)
        return;
    pipeline->last_expire = now;
    opd_spaces_expire(pipeline->spaces, now, LINGER_NS);
}

void
opd_pipeline_set_tap(struct opd_pipeline *pipeline, struct opd_pc_tap *tap)
{
    pipeline->tap = tap;
}

struct opd_pc_tap *
opd_pipeline_tap(const struct opd_pipeline *pipeline)
{
    return pipeline->tap;
}

void
opd_pipeline_feed_samples(struct opd_pipeline *pipeline, const uint32_t *events,
                          const struct opd_record *records, unsigned count)
{
    opd_attribute_samples(pipeline, events, records, count);
    if (count > 0)
        expire(pipeline, records[count - 1].time);
}

void
opd_pipeline_feed(struct opd_pipeline *pipeline, unsigned event, const struct opd_record *record)
{
    switch (record->type) {
    case OPD_RECORD_SAMPLE:
        opd_attribute_samples(pipeline, &event, record, 1);
        break;
    case OPD_RECORD_MMAP:
    case OPD_RECORD_MMAP2:
        opd_pipeline_feed_map(pipeline, record);
        break;
    case OPD_RECORD_COMM:
        opd_spaces_comm(pipeline->spaces, record->u.comm.pid, record->u.comm.tid,
                        record->u.comm.comm, (record->misc & OPD_MISC_COMM_EXEC) != 0,
                        record->time);
        break;
    case OPD_RECORD_FORK: {
        struct opd_fork fork = {
            .pid = record->u.task.pid,
            .tid = record->u.task.tid,
            .parent_pid = record->u.task.parent_pid,
            .parent_tid = record->u.task.parent_tid,
            .own_maps = (record->misc & FORK_OWN_MAPS) != 0,
        };
        opd_spaces_fork(pipeline->spaces, &fork, record->time);
        break;
    }
    case OPD_RECORD_EXIT:
        opd_spaces_exit(pipeline->spaces, record->u.task.pid, record->u.task.tid, record->time);
        break;
    case OPD_RECORD_KSYMBOL:
        opd_pipeline_feed_ksymbol(pipeline, record);
        break;
    case OPD_RECORD_CGROUP:
        opd_cgroups_set_id(pipeline->cgroups, record->u.cgroup.id, record->u.cgroup.path);
        break;
    default:
        break;
    }
    expire(pipeline, record->time);
}

void
opd_pipeline_stats(const struct opd_pipeline *pipeline, struct opd_pipeline_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    opd_images_stats(pipeline->images, &stats->images);
    opd_spaces_stats(pipeline->spaces, &stats->spaces);
    opd_hash_pair_stats(pipeline->pair, &stats->hash);
    stats->labels = pipeline->labels;
    opd_cgroups_stats(pipeline->cgroups, &stats->labels.cgroups);
    stats->memo_hits = pipeline->memo_hits;
    stats->memo_misses = pipeline->memo_misses;
    stats->snapshots = pipeline->snapshots;
    stats->snapshot_failures = pipeline->snapshot_failures;
}
