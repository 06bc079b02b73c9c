// SPDX-License-Identifier: Apache-2.0
#include "opd/cgroup.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "opd/intern.h"

#define PATH_LIMIT 4096u

enum state { KNOWN, QUEUED, TOLD };

struct entry {
    struct entry *path_next, *id_next;
    struct entry *queue_next; // to be told, or leaving
    uint64_t path_hash, id;   // id 0: none known
    uint32_t uid;
    enum state state;
    char path[];
};

struct queue {
    struct entry *first, **last;
};

struct opd_cgroups {
    pthread_mutex_t lock; // one thread changes, any takes
    uint32_t limit, chains, live, next_uid;
    struct entry **by_path, **by_id;
    struct queue fresh;    // to be told
    struct entry *leaving; // mentioned by the window that just ended
    struct entry *gone;    // by none any more: to be told
    uint64_t refused, swept, path_bytes;
};

static uint32_t
chain_of(const struct opd_cgroups *cgroups, uint64_t hash)
{
    return (uint32_t)((hash * 0x9e3779b97f4a7c15u) >> 40) & (cgroups->chains - 1);
}

static void
push(struct queue *queue, struct entry *entry)
{
    entry->queue_next = NULL;
    *queue->last = entry;
    queue->last = &entry->queue_next;
}

static void
set_id(struct opd_cgroups *cgroups, struct entry *entry, uint64_t id)
{
    if (entry->id != 0) {
        struct entry **link = &cgroups->by_id[chain_of(cgroups, entry->id)];
        while (*link != entry)
            link = &(*link)->id_next;
        *link = entry->id_next;
    }
    entry->id = id;
    if (id == 0)
        return;
    struct entry **chain = &cgroups->by_id[chain_of(cgroups, id)];
    entry->id_next = *chain;
    *chain = entry;
}

static struct entry *
find_id(const struct opd_cgroups *cgroups, uint64_t id)
{
    struct entry *entry = id != 0 ? cgroups->by_id[chain_of(cgroups, id)] : NULL;
    while (entry != NULL && entry->id != id)
        entry = entry->id_next;
    return entry;
}

// NULL, counted, at the limit.
static struct entry *
get(struct opd_cgroups *cgroups, const char *path)
{
    size_t length = strlen(path);
    // What the kernel writes for a path that it could not tell begins with "//".
    if (path[0] != '/' || path[1] == '/' || length >= PATH_LIMIT)
        return NULL;
    uint64_t hash = opd_hash64(path, length);
    struct entry **chain = &cgroups->by_path[chain_of(cgroups, hash)];
    for (struct entry *entry = *chain; entry != NULL; entry = entry->path_next)
        if (entry->path_hash == hash && strcmp(entry->path, path) == 0)
            return entry;
    struct entry *entry = NULL;
    if (cgroups->live < cgroups->limit)
        entry = calloc(1, sizeof *entry + length + 1);
    if (entry == NULL) {
        cgroups->refused++;
        return NULL;
    }
    memcpy(entry->path, path, length + 1);
    entry->path_hash = hash;
    entry->uid = cgroups->next_uid++;
    entry->path_next = *chain;
    *chain = entry;
    cgroups->live++;
    cgroups->path_bytes += length + 1;
    return entry;
}

static uint32_t
use(struct opd_cgroups *cgroups, struct entry *entry)
{
    if (entry == NULL)
        return OPD_CGROUP_UNKNOWN;
    if (entry->state == KNOWN) {
        entry->state = QUEUED;
        push(&cgroups->fresh, entry);
    }
    return entry->uid;
}

struct opd_cgroups *
opd_cgroups_create(uint32_t limit)
{
    struct opd_cgroups *cgroups = calloc(1, sizeof *cgroups);
    if (cgroups == NULL)
        return NULL;
    pthread_mutex_init(&cgroups->lock, NULL);
    cgroups->limit = limit < 1 ? 1 : limit;
    cgroups->chains = 64;
    while (cgroups->chains < limit / 4)
        cgroups->chains *= 2;
    cgroups->next_uid = OPD_CGROUP_ROOT;
    cgroups->fresh.last = &cgroups->fresh.first;
    cgroups->by_path = calloc(cgroups->chains, sizeof *cgroups->by_path);
    cgroups->by_id = calloc(cgroups->chains, sizeof *cgroups->by_id);
    if (cgroups->by_path == NULL || cgroups->by_id == NULL || get(cgroups, "/") == NULL) {
        opd_cgroups_destroy(cgroups);
        errno = ENOMEM;
        return NULL;
    }
    opd_cgroups_put(cgroups, "/");
    return cgroups;
}

static void
free_queue(struct entry *entry)
{
    while (entry != NULL) {
        struct entry *next = entry->queue_next;
        free(entry);
        entry = next;
    }
}

void
opd_cgroups_destroy(struct opd_cgroups *cgroups)
{
    if (cgroups == NULL)
        return;
    for (uint32_t i = 0; cgroups->by_path != NULL && i < cgroups->chains; i++)
        while (cgroups->by_path[i] != NULL) {
            struct entry *next = cgroups->by_path[i]->path_next;
            free(cgroups->by_path[i]);
            cgroups->by_path[i] = next;
        }
    free_queue(cgroups->leaving);
    free_queue(cgroups->gone);
    free(cgroups->by_path);
    free(cgroups->by_id);
    pthread_mutex_destroy(&cgroups->lock);
    free(cgroups);
}

uint32_t
opd_cgroups_put(struct opd_cgroups *cgroups, const char *path)
{
    pthread_mutex_lock(&cgroups->lock);
    uint32_t uid = use(cgroups, get(cgroups, path));
    pthread_mutex_unlock(&cgroups->lock);
    return uid;
}

void
opd_cgroups_set_id(struct opd_cgroups *cgroups, uint64_t id, const char *path)
{
    if (id == 0)
        return;
    pthread_mutex_lock(&cgroups->lock);
    struct entry *entry = get(cgroups, path), *before = find_id(cgroups, id);
    if (before != NULL && before != entry)
        set_id(cgroups, before, 0); // the id came back as another cgroup
    if (entry != NULL && entry->id != id)
        set_id(cgroups, entry, id); // the path came back as another cgroup
    pthread_mutex_unlock(&cgroups->lock);
}

uint32_t
opd_cgroups_find(struct opd_cgroups *cgroups, uint64_t id)
{
    pthread_mutex_lock(&cgroups->lock);
    uint32_t uid = use(cgroups, find_id(cgroups, id));
    pthread_mutex_unlock(&cgroups->lock);
    return uid;
}

bool
opd_cgroups_waiting(struct opd_cgroups *cgroups)
{
    pthread_mutex_lock(&cgroups->lock);
    bool waiting = cgroups->fresh.first != NULL || cgroups->gone != NULL;
    pthread_mutex_unlock(&cgroups->lock);
    return waiting;
}

size_t
opd_cgroups_take(struct opd_cgroups *cgroups, struct opd_cgroup *out, size_t room)
{
    size_t count = 0;
    pthread_mutex_lock(&cgroups->lock);
    while (count < room && cgroups->fresh.first != NULL) {
        struct entry *entry = cgroups->fresh.first;
        char *path = strdup(entry->path);
        if (path == NULL)
            break; // told at the next call
        out[count++] = (struct opd_cgroup){entry->uid, path};
        entry->state = TOLD;
        cgroups->fresh.first = entry->queue_next;
        if (entry->queue_next == NULL)
            cgroups->fresh.last = &cgroups->fresh.first;
    }
    while (count < room && cgroups->gone != NULL) {
        struct entry *entry = cgroups->gone;
        out[count++] = (struct opd_cgroup){entry->uid, NULL};
        cgroups->gone = entry->queue_next;
        free(entry);
    }
    pthread_mutex_unlock(&cgroups->lock);
    return count;
}

void
opd_cgroup_release(struct opd_cgroup *cgroup)
{
    free(cgroup->path);
    cgroup->path = NULL;
}

bool
opd_cgroups_is_full(const struct opd_cgroups *cgroups)
{
    return cgroups->live > cgroups->limit - cgroups->limit / 4; // only the caller changes it
}

void
opd_cgroups_turn(struct opd_cgroups *cgroups)
{
    if (cgroups->leaving == NULL)
        return;
    pthread_mutex_lock(&cgroups->lock);
    struct entry **end = &cgroups->gone;
    while (*end != NULL)
        end = &(*end)->queue_next;
    *end = cgroups->leaving;
    cgroups->leaving = NULL;
    pthread_mutex_unlock(&cgroups->lock);
}

static int
compare(const void *one, const void *other)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

void
opd_cgroups_sweep(struct opd_cgroups *cgroups, uint32_t *used, size_t count)
{
    qsort(used, count, sizeof *used, compare);
    pthread_mutex_lock(&cgroups->lock);
    for (uint32_t i = 0; i < cgroups->chains; i++) {
        struct entry **link = &cgroups->by_path[i];
        while (*link != NULL) {
            struct entry *entry = *link;
            if (entry->uid == OPD_CGROUP_ROOT || entry->state == QUEUED ||
                bsearch(&entry->uid, used, count, sizeof *used, compare) != NULL) {
                link = &entry->path_next;
                continue;
            }
            set_id(cgroups, entry, 0);
            *link = entry->path_next;
            cgroups->live--;
            cgroups->swept++;
            cgroups->path_bytes -= strlen(entry->path) + 1;
            if (entry->state == KNOWN) {
                free(entry);
                continue;
            }
            entry->queue_next = cgroups->leaving;
            cgroups->leaving = entry;
        }
    }
    pthread_mutex_unlock(&cgroups->lock);
}

void
opd_cgroups_stats(struct opd_cgroups *cgroups, struct opd_cgroups_stats *stats)
{
    pthread_mutex_lock(&cgroups->lock);
    *stats = (struct opd_cgroups_stats){
        .live = cgroups->live,
        .limit = cgroups->limit,
        .refused = cgroups->refused,
        .swept = cgroups->swept,
        .bytes = cgroups->live * sizeof(struct entry) + cgroups->path_bytes +
                 2 * cgroups->chains * sizeof(void *),
    };
    pthread_mutex_unlock(&cgroups->lock);
}
