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
#define RESNAPSHOT_EVERY_NS 1000000000u
#define FORK_OWN_MAPS (1u << 13) // PERF_RECORD_MISC_FORK_EXEC
#define KSYMBOL_BPF 1u
#define KSYMBOL_UNREGISTER 1u
#define KERNEL_PID UINT32_MAX

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
    if (weight->next_since != 0) { // few records can be older than that
        weight->period = weight->next;
        weight->fixed = true;
    }
    weight->next = period;
    weight->next_since = since;
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

int
opd_pipeline_add_build_id(struct opd_pipeline *pipeline, const char *path, const uint8_t *build_id,
                          size_t size)
{
    struct opd_build_id_entry entry = {.size = (uint8_t)size};
    if (size == 0 || size > sizeof entry.bytes)
        return -EINVAL;
    memcpy(entry.bytes, build_id, size);
    entry.path = strdup(path);
    struct opd_build_id_entry *entries =
        realloc(pipeline->build_ids, (pipeline->build_id_count + 1) * sizeof entry);
    if (entries != NULL)
        pipeline->build_ids = entries;
    if (entry.path == NULL || entries == NULL) {
        free(entry.path);
        return -ENOMEM;
    }
    entries[pipeline->build_id_count++] = entry;
    return 0;
}

uint64_t
opd_pipeline_kernel_text(const struct opd_pipeline *pipeline)
{
    return pipeline->kernel_text;
}

uint32_t
opd_pipeline_kernel_build_id(const struct opd_pipeline *pipeline, uint8_t build_id[20])
{
    memcpy(build_id, pipeline->kernel_build_id, sizeof pipeline->kernel_build_id);
    return pipeline->kernel_build_id_size;
}

static void
use_build_id_table(const struct opd_pipeline *pipeline, struct opd_image_key *key)
{
    for (size_t i = 0; i < pipeline->build_id_count && key->build_id_size == 0; i++) {
        const struct opd_build_id_entry *entry = &pipeline->build_ids[i];
        if (strcmp(entry->path, key->path) != 0)
            continue;
        memcpy(key->build_id, entry->bytes, entry->size);
        key->build_id_size = entry->size;
    }
}

static uint32_t
put_image(struct opd_pipeline *pipeline, const struct opd_image_key *key, bool *fresh)
{
    pthread_mutex_lock(&pipeline->image_lock);
    uint32_t uid = opd_images_put(pipeline->images, key, fresh);
    pthread_mutex_unlock(&pipeline->image_lock);
    return uid;
}

// A range of kernel addresses that belongs to `image`.
static void
put_kernel_range(struct opd_pipeline *pipeline, uint64_t start, uint64_t end, uint32_t image)
{
    struct opd_mapping mapping = {.start = start, .end = end, .image = image};
    if (opd_maps_put(&pipeline->kernel_maps, &mapping, false, pipeline->options.spaces.mappings * 4,
                     pipeline->kernel_version + 1) > 0)
        pipeline->kernel_version++;
}

int
opd_pipeline_add_module(struct opd_pipeline *pipeline, const char *name, uint64_t start,
                        uint64_t end)
{
    char path[256];
    size_t length = strlen(name);
    if (length == 0 || length > sizeof path - 3 || end <= start)
        return -EINVAL;
    path[0] = '[';
    memcpy(path + 1, name, length);
    memcpy(path + 1 + length, "]", 2);
    struct opd_image_key key = {
        .kind = OPD_IMAGE_MODULE, .path = path, .symbol = "", .start = start, .end = end};
    use_build_id_table(pipeline, &key);
    bool fresh;
    uint32_t uid = put_image(pipeline, &key, &fresh);
    if (uid == OPD_UID_UNKNOWN)
        return -ENOSPC;
    put_kernel_range(pipeline, start, end, uid);
    return 0;
}

// A module's name from its file: no folder, no .ko or compression, '-' as '_'.
static bool
module_name(const char *path, char *name, size_t size)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (*base == '[')
        base++;
    size_t length = strcspn(base, ".]");
    if (length == 0 || length >= size)
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = base[i] == '-' ? '_' : base[i];
    name[length] = '\0';
    return true;
}

static void
feed_kernel_map(struct opd_pipeline *pipeline, const struct opd_record *record)
{
    const char *path = record->u.mmap.path;
    uint64_t start = record->u.mmap.start;
    char name[256];
    if (strncmp(path, "[kernel", 7) == 0) {
        if (record->u.mmap.build_id_size > 0) {
            pipeline->kernel_build_id_size = record->u.mmap.build_id_size;
            memcpy(pipeline->kernel_build_id, record->u.mmap.build_id,
                   sizeof pipeline->kernel_build_id);
        }
        if (strstr(path, "]_text") != NULL || strstr(path, "]_stext") != NULL)
            pipeline->kernel_text =
                record->u.mmap.page_offset != 0 ? record->u.mmap.page_offset : start;
    } else if (strncmp(path, "[guest", 6) != 0 && module_name(path, name, sizeof name)) {
        opd_pipeline_add_module(pipeline, name, start, start + record->u.mmap.length);
    }
}

static void
feed_map(struct opd_pipeline *pipeline, const struct opd_record *record)
{
    if ((record->misc & OPD_MISC_CPUMODE_MASK) == OPD_MISC_KERNEL ||
        record->u.mmap.pid == KERNEL_PID) {
        feed_kernel_map(pipeline, record);
        return;
    }
    if (!record->u.mmap.executable)
        return;
    char shortened[4096];
    struct opd_image_key key;
    opd_image_key_of_path(&key, record->u.mmap.path, shortened, sizeof shortened);
    if (key.kind == OPD_IMAGE_FILE) {
        if (record->u.mmap.build_id_size > 0) {
            key.build_id_size = record->u.mmap.build_id_size;
            memcpy(key.build_id, record->u.mmap.build_id, key.build_id_size);
        } else {
            key.major = record->u.mmap.major;
            key.minor = record->u.mmap.minor;
            key.inode = record->u.mmap.inode;
            key.generation = record->u.mmap.inode_generation;
            use_build_id_table(pipeline, &key);
        }
    }
    struct opd_mapping mapping = {
        .start = record->u.mmap.start,
        .end = record->u.mmap.start + record->u.mmap.length,
        .offset = key.kind == OPD_IMAGE_VDSO ? 0 : record->u.mmap.page_offset,
    };
    uint32_t pid = record->u.mmap.pid;
    bool fresh;
    pthread_mutex_lock(&pipeline->image_lock);
    mapping.image = opd_images_put(pipeline->images, &key, &fresh);
    pthread_mutex_unlock(&pipeline->image_lock);
    if (fresh && key.kind == OPD_IMAGE_FILE && pipeline->proc_root != NULL) {
        int fd = opd_procfs_open_image(pipeline->proc_root, pid, mapping.start, mapping.end, &key);
        if (fd >= 0) {
            pthread_mutex_lock(&pipeline->image_lock);
            int rc = opd_images_give_fd(pipeline->images, mapping.image, fd);
            pthread_mutex_unlock(&pipeline->image_lock);
            if (rc != 0)
                close(fd);
        }
    }
    if (opd_spaces_map(pipeline->spaces, pid, &mapping, record->time) == -ENOSPC &&
        pipeline->proc_root != NULL &&
        record->time - pipeline->last_resnapshot > RESNAPSHOT_EVERY_NS) {
        pipeline->last_resnapshot = record->time;
        opd_pipeline_snapshot_one(pipeline, pid);
    }
}

static void
feed_ksymbol(struct opd_pipeline *pipeline, const struct opd_record *record)
{
    uint64_t start = record->u.ksymbol.address, end = start + record->u.ksymbol.length;
    if (record->u.ksymbol.kind != KSYMBOL_BPF || end <= start)
        return;
    if (record->u.ksymbol.flags & KSYMBOL_UNREGISTER) {
        put_kernel_range(pipeline, start, end, OPD_UID_KERNEL);
        return;
    }
    struct opd_image_key key = {.kind = OPD_IMAGE_BPF,
                                .path = "[bpf]",
                                .symbol = record->u.ksymbol.name,
                                .start = start,
                                .end = end};
    bool fresh;
    uint32_t uid = put_image(pipeline, &key, &fresh);
    if (uid != OPD_UID_UNKNOWN)
        put_kernel_range(pipeline, start, end, uid);
}

void
opd_pipeline_snapshot_one(struct opd_pipeline *pipeline, uint32_t pid)
{
    pthread_mutex_lock(&pipeline->image_lock);
    int rc = opd_procfs_snapshot(pipeline->proc_root, pid, pipeline->spaces, pipeline->images);
    pthread_mutex_unlock(&pipeline->image_lock);
    pipeline->snapshots++;
    if (rc != 0)
        pipeline->snapshot_failures++;
}

int
opd_pipeline_snapshot(struct opd_pipeline *pipeline, void (*pause)(void *context), void *context)
{
    if (pipeline->proc_root == NULL)
        return -EINVAL;
    pthread_mutex_lock(&pipeline->image_lock);
    int count = opd_procfs_snapshot_all(pipeline->proc_root, pipeline->spaces, pipeline->images,
                                        pause, context);
    pthread_mutex_unlock(&pipeline->image_lock);
    return count;
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
        feed_map(pipeline, record);
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
        feed_ksymbol(pipeline, record);
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
