// SPDX-License-Identifier: Apache-2.0
// Sampling of given processes: an event for each of their threads on each CPU,
// inherited by what they make.
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"
#include "sampler.h"

// All events of one thread on one ring, not counting yet.
static int
open_on(struct opd_sampler *sampler, struct opd_ring *ring, uint32_t tid)
{
    unsigned fields = sampler->fields;
    int rc = opd_ring_add_task(ring, tid, 0, NULL, fields);
    for (unsigned i = 0; rc == 0 && i < sampler->attr_count; i++)
        rc = opd_ring_add_task(ring, tid, i, &sampler->attrs[i], fields);
    return rc;
}

static void
forget_thread(struct opd_sampler *sampler, uint32_t tid)
{
    for (size_t i = 0; i < sampler->ring_count; i++)
        opd_ring_remove_task(&sampler->rings[i], tid);
}

static int
open_thread(struct opd_sampler *sampler, uint32_t pid, uint32_t tid)
{
    if (sampler->target_count == sampler->target_room) {
        size_t room = sampler->target_room == 0 ? 16 : sampler->target_room * 2;
        struct opd_target *targets = realloc(sampler->targets, room * sizeof *targets);
        if (targets == NULL)
            return -ENOMEM;
        sampler->targets = targets;
        sampler->target_room = room;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sampler->ring_count; i++)
        rc = open_on(sampler, &sampler->rings[i], tid);
    if (rc == 0)
        sampler->targets[sampler->target_count++] = (struct opd_target){pid, tid};
    else
        forget_thread(sampler, tid);
    return rc;
}

static bool
is_target(const struct opd_sampler *sampler, uint32_t tid)
{
    for (size_t i = 0; i < sampler->target_count; i++)
        if (sampler->targets[i].tid == tid)
            return true;
    return false;
}

static int
open_threads(struct opd_sampler *sampler, uint32_t pid)
{
    char path[4096];
    const char *root = sampler->pipeline->proc_root;
    snprintf(path, sizeof path, "%s/%u/task", root != NULL ? root : "/proc", pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno == ENOENT ? -ESRCH : -errno;
    int opened = 0, rc = 0;
    struct dirent *entry;
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        if (tid == 0 || is_target(sampler, tid))
            continue;
        rc = open_thread(sampler, pid, tid);
        if (rc == 0)
            opened++;
        else if (rc == -ESRCH)
            rc = 0; // it ended while it was looked at
    }
    closedir(folder);
    if (rc == 0)
        return opened > 0 ? opened : -ESRCH;
    while (opened-- > 0)
        forget_thread(sampler, sampler->targets[--sampler->target_count].tid);
    return rc;
}

int
opd_sampler_add_process(struct opd_sampler *sampler, uint32_t pid)
{
    if (!sampler->options.targeted)
        return -EINVAL;
    pthread_mutex_lock(&sampler->lock);
    int rc = open_threads(sampler, pid);
    if (rc > 0 && sampler->started) {
        for (size_t i = 0; i < sampler->ring_count; i++) {
            opd_ring_enable(&sampler->rings[i], true);
            if (sampler->paused)
                opd_ring_enable(&sampler->rings[i], false);
        }
        // After the side-band is on: what changes meanwhile comes as records.
        if (sampler->pipeline->proc_root != NULL)
            opd_pipeline_snapshot_one(sampler->pipeline, pid);
    }
    pthread_mutex_unlock(&sampler->lock);
    return rc;
}

bool
opd_sampler_covers(struct opd_sampler *sampler, uint32_t pid)
{
    pthread_mutex_lock(&sampler->lock);
    bool covers = opd_spaces_lives(sampler->pipeline->spaces, pid);
    pthread_mutex_unlock(&sampler->lock);
    return covers;
}

int
opd_sampler_open_targets(struct opd_sampler *sampler, struct opd_ring *ring)
{
    for (size_t i = 0; i < sampler->target_count; i++) {
        int rc = open_on(sampler, ring, sampler->targets[i].tid);
        if (rc != 0)
            opd_ring_remove_task(ring, sampler->targets[i].tid);
        // A thread that has ended cannot be opened; what it made goes on elsewhere.
        if (rc != 0 && rc != -ESRCH)
            return rc;
    }
    return 0;
}

int
opd_sampler_add_target_event(struct opd_sampler *sampler, unsigned number)
{
    unsigned fields = sampler->fields;
    for (size_t i = 0; i < sampler->target_count; i++)
        for (size_t j = 0; j < sampler->ring_count; j++) {
            int rc = opd_ring_add_task(&sampler->rings[j], sampler->targets[i].tid, number,
                                       &sampler->attrs[number], fields);
            if (rc != 0 && rc != -ESRCH)
                return rc;
        }
    return 0;
}

int
opd_sampler_snapshot_targets(struct opd_sampler *sampler)
{
    int processes = 0;
    if (sampler->pipeline->proc_root == NULL)
        return -EINVAL;
    for (size_t i = 0; i < sampler->target_count; i++) {
        // The threads of a process stand together.
        if (i > 0 && sampler->targets[i].pid == sampler->targets[i - 1].pid)
            continue;
        opd_pipeline_snapshot_one(sampler->pipeline, sampler->targets[i].pid);
        processes++;
    }
    return processes;
}

// A descriptor hangs up when its thread and all that inherited from it ended.
static void
forget_ended(struct opd_sampler *sampler, const struct opd_ring *ring, struct pollfd *polls)
{
    size_t count = 0;
    for (size_t i = 0; i < ring->task_count; i++)
        if (ring->tasks[i].event == OPD_RING_SIDEBAND)
            polls[count++] = (struct pollfd){.fd = ring->tasks[i].fd, .events = 0};
    if (poll(polls, count, 0) <= 0)
        return;
    for (size_t at = count; at-- > 0;) {
        if (!(polls[at].revents & POLLHUP))
            continue;
        for (size_t i = 0; i < ring->task_count; i++) {
            if (ring->tasks[i].fd != polls[at].fd)
                continue;
            uint32_t tid = ring->tasks[i].tid;
            forget_thread(sampler, tid);
            size_t kept = 0;
            for (size_t j = 0; j < sampler->target_count; j++)
                if (sampler->targets[j].tid != tid)
                    sampler->targets[kept++] = sampler->targets[j];
            sampler->target_count = kept;
            break;
        }
    }
}

int
opd_sampler_sweep_targets(struct opd_sampler *sampler)
{
    pthread_mutex_lock(&sampler->lock);
    size_t most = 0;
    for (size_t i = 0; i < sampler->ring_count; i++)
        if (sampler->rings[i].task_count > most)
            most = sampler->rings[i].task_count;
    struct pollfd *polls = malloc((most + 1) * sizeof *polls);
    if (polls == NULL) {
        pthread_mutex_unlock(&sampler->lock);
        return -ENOMEM;
    }
    // Ids of closed events are unknown: their records are told apart first.
    if (sampler->started)
        opd_sampler_drain(sampler, false);
    for (size_t i = 0; i < sampler->ring_count; i++)
        forget_ended(sampler, &sampler->rings[i], polls);
    opd_sampler_sweep(sampler);
    int left = (int)sampler->target_count;
    free(polls);
    pthread_mutex_unlock(&sampler->lock);
    return left;
}
