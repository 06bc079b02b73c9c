// SPDX-License-Identifier: Apache-2.0
// What is mapped where, by the records of maps and kernel symbols and by /proc:
// the images of processes, of the kernel, its modules and BPF programs.
#include "pipeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opd/procfs.h"

#define RESNAPSHOT_EVERY_NS 1000000000u
#define KSYMBOL_BPF 1u
#define KSYMBOL_UNREGISTER 1u
#define KERNEL_PID UINT32_MAX

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

void
opd_pipeline_feed_map(struct opd_pipeline *pipeline, const struct opd_record *record)
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

void
opd_pipeline_feed_ksymbol(struct opd_pipeline *pipeline, const struct opd_record *record)
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
