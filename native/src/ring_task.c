// SPDX-License-Identifier: Apache-2.0
// Events of single threads, redirected into the ring of the CPU they run on.
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ring.h"

// The place of the first task whose id is not below `id`.
static size_t
place_of(const struct opd_ring *ring, uint64_t id)
{
    size_t low = 0, high = ring->task_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ring->tasks[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct opd_ring_task *
opd_ring_find_task(const struct opd_ring *ring, uint64_t id)
{
    size_t place = place_of(ring, id);
    return place < ring->task_count && ring->tasks[place].id == id ? &ring->tasks[place] : NULL;
}

static int
open_task(const struct opd_ring *ring, struct perf_event_attr *attr, struct opd_ring_task *task)
{
    // The threads and processes that it makes write into the same ring under
    // the same id, and what they lose is counted with it.
    attr->inherit = 1;
    task->fd = opd_ring_open_event(attr, (int)task->tid, ring->cpu);
    if (task->fd < 0)
        return task->fd;
    if (ioctl(task->fd, PERF_EVENT_IOC_ID, &task->id) == 0 &&
        ioctl(task->fd, PERF_EVENT_IOC_SET_OUTPUT, ring->sideband.fd) == 0)
        return 0;
    int rc = -errno;
    close(task->fd);
    return rc;
}

int
opd_ring_add_task(struct opd_ring *ring, uint32_t tid, unsigned number,
                  const struct opd_event_attr *event, unsigned fields)
{
    struct perf_event_attr attr;
    struct opd_ring_task task = {.tid = tid, .event = number};
    if (ring->task_count == ring->task_room) {
        size_t room = ring->task_room == 0 ? 16 : ring->task_room * 2;
        struct opd_ring_task *tasks = realloc(ring->tasks, room * sizeof *tasks);
        if (tasks == NULL)
            return -ENOMEM;
        ring->tasks = tasks;
        ring->task_room = room;
    }
    if (event != NULL) {
        opd_ring_event_attr(&attr, event, fields);
    } else {
        opd_ring_common_attr(&attr, fields);
        attr.type = PERF_TYPE_SOFTWARE;
        attr.config = PERF_COUNT_SW_DUMMY;
        attr.sample_period = 1;
        attr.exclude_kernel = 1;
        attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = 1;
        task.event = OPD_RING_SIDEBAND;
    }
    int rc = open_task(ring, &attr, &task);
    if (rc != 0)
        return rc;
    size_t place = place_of(ring, task.id);
    memmove(ring->tasks + place + 1, ring->tasks + place,
            (ring->task_count - place) * sizeof *ring->tasks);
    ring->tasks[place] = task;
    ring->task_count++;
    return 0;
}

static void
close_task(struct opd_ring *ring, const struct opd_ring_task *task)
{
    uint64_t values[4];
    struct opd_ring_event *slot =
        task->event == OPD_RING_SIDEBAND ? &ring->sideband : &ring->events[task->event];
    if (read(task->fd, values, sizeof values) == sizeof values)
        slot->closed_lost += values[3];
    close(task->fd);
}

void
opd_ring_remove_task(struct opd_ring *ring, uint32_t tid)
{
    size_t kept = 0;
    for (size_t i = 0; i < ring->task_count; i++) {
        if (ring->tasks[i].tid == tid)
            close_task(ring, &ring->tasks[i]);
        else
            ring->tasks[kept++] = ring->tasks[i];
    }
    ring->task_count = kept;
}

void
opd_ring_remove_tasks(struct opd_ring *ring, unsigned number)
{
    size_t kept = 0;
    for (size_t i = 0; i < ring->task_count; i++) {
        if (ring->tasks[i].event == number)
            close_task(ring, &ring->tasks[i]);
        else
            ring->tasks[kept++] = ring->tasks[i];
    }
    ring->task_count = kept;
}

void
opd_ring_close_tasks(struct opd_ring *ring)
{
    for (size_t i = 0; i < ring->task_count; i++)
        close_task(ring, &ring->tasks[i]);
    free(ring->tasks);
    ring->tasks = NULL;
    ring->task_count = ring->task_room = 0;
}
