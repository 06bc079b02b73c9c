// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PERF_FORMAT_LOST
#define PERF_FORMAT_LOST (1U << 4)
#endif

#define SAMPLE_TYPE                                                                                \
    (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)

// Only events by frequency say their period: a software event of a fixed one
// that is asked for it makes a sample of every single occurrence.
static uint64_t
sample_type(unsigned fields)
{
    return SAMPLE_TYPE | (fields & OPD_RING_CALLCHAIN ? PERF_SAMPLE_CALLCHAIN : 0) |
           (fields & OPD_RING_CGROUP ? PERF_SAMPLE_CGROUP : 0) |
           (fields & OPD_RING_PERIOD ? PERF_SAMPLE_PERIOD : 0) |
           (fields & OPD_RING_RAW ? PERF_SAMPLE_RAW : 0) |
           (fields & OPD_RING_MEMORY ? PERF_SAMPLE_ADDR | PERF_SAMPLE_PHYS_ADDR |
                                           PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_WEIGHT
                                     : 0);
}

unsigned
opd_ring_fields(const struct opd_event_attr *event, unsigned fields)
{
    return fields | (event->frequency ? OPD_RING_PERIOD : 0) |
           (event->raw >= OPD_RAW_RECORD ? OPD_RING_RAW : 0) |
           (event->raw >= OPD_RAW_MEMORY ? OPD_RING_MEMORY : 0);
}

void
opd_ring_layout(struct opd_record_layout *layout, unsigned fields)
{
    *layout = (struct opd_record_layout){.sample_type = sample_type(fields), .sample_id_all = true};
}

int
opd_ring_open_event(struct perf_event_attr *attr, int pid, uint32_t cpu)
{
    // PERF_FORMAT_LOST came with 6.0: without it LOST records have to do.
    for (int attempt = 0; attempt < 2; attempt++) {
        if (attempt == 1)
            attr->read_format &= ~(uint64_t)PERF_FORMAT_LOST;
        long fd = syscall(SYS_perf_event_open, attr, pid, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
        if (fd >= 0)
            return (int)fd;
        if (errno != EINVAL)
            break;
    }
    return -errno;
}

void
opd_ring_common_attr(struct perf_event_attr *attr, unsigned fields)
{
    memset(attr, 0, sizeof *attr);
    attr->size = sizeof *attr;
    attr->sample_type = sample_type(fields);
    attr->read_format =
        PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_LOST;
    attr->sample_id_all = 1;
    attr->use_clockid = 1;
    attr->clockid = CLOCK_MONOTONIC;
    attr->disabled = 1;
}

bool
opd_ring_can_cgroup(void)
{
    struct perf_event_attr attr;
    opd_ring_common_attr(&attr, OPD_RING_CGROUP);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_DUMMY;
    attr.exclude_kernel = attr.exclude_hv = 1;
    attr.cgroup = attr.task = 1;
    for (int attempt = 0; attempt < 2; attempt++) {
        long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (fd >= 0)
            close((int)fd);
        if (fd >= 0 || errno != EINVAL)
            return true; // what is not permitted shows when the real one is opened
        attr.read_format &= ~(uint64_t)PERF_FORMAT_LOST;
    }
    return false;
}

static int
take_id(struct opd_ring_event *event)
{
    return ioctl(event->fd, PERF_EVENT_IOC_ID, &event->id) == 0 ? 0 : -errno;
}

int
opd_ring_open(struct opd_ring *ring, uint32_t cpu, size_t data_bytes, unsigned fields,
              bool targeted)
{
    struct perf_event_attr attr;
    memset(ring, 0, sizeof *ring);
    ring->cpu = cpu;
    ring->sideband.fd = -1;
    ring->map = MAP_FAILED;
    ring->targeted = targeted;

    opd_ring_common_attr(&attr, fields);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_DUMMY;
    attr.sample_period = 1;
    if (targeted) {
        attr.exclude_kernel = 1; // or an unprivileged user may not open it
    } else {
        attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = 1;
        attr.ksymbol = attr.bpf_event = 1;
        attr.cgroup = (fields & OPD_RING_CGROUP) != 0;
    }
    attr.watermark = 1;
    attr.wakeup_watermark = (uint32_t)(data_bytes / 4);
    // Not attr.build_id: the kernel then marks the MMAP2 records of every other
    // tool on the machine too, over their device and inode, and perf crashes
    // on them. The worker reads the build-id from the file that was opened.
    ring->sideband.fd = opd_ring_open_event(&attr, targeted ? getpid() : -1, cpu);
    if (ring->sideband.fd < 0)
        return ring->sideband.fd;

    int rc = take_id(&ring->sideband);
    ring->data_bytes = data_bytes;
    ring->map_bytes = data_bytes + (size_t)sysconf(_SC_PAGESIZE);
    if (rc == 0) {
        ring->map =
            mmap(NULL, ring->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->sideband.fd, 0);
        if (ring->map == MAP_FAILED)
            rc = -errno;
    }
    if (rc != 0)
        opd_ring_close(ring);
    return rc;
}

void
opd_ring_event_attr(struct perf_event_attr *out, const struct opd_event_attr *event,
                    unsigned fields)
{
    opd_ring_common_attr(out, opd_ring_fields(event, fields));
    out->type = event->type;
    out->config = event->config;
    out->config1 = event->config1;
    out->config2 = event->config2;
    out->freq = event->frequency;
    out->sample_period = event->rate;
    out->exclude_user = event->exclude_user;
    out->exclude_kernel = event->exclude_kernel;
    out->exclude_hv = event->exclude_hv;
    out->exclude_idle = event->exclude_idle;
    out->precise_ip = event->precise_ip & 3;
}

int
opd_ring_add(struct opd_ring *ring, const struct opd_event_attr *event, unsigned fields)
{
    struct perf_event_attr attr;
    opd_ring_event_attr(&attr, event, fields);

    struct opd_ring_event *slot = &ring->events[ring->event_count];
    memset(slot, 0, sizeof *slot);
    slot->fd = -1;
    if (ring->targeted) { // its threads have the events; whether there is such a one is asked now
        attr.inherit = 1;
        int fd = opd_ring_open_event(&attr, getpid(), ring->cpu);
        if (fd < 0)
            return fd;
        close(fd);
        ring->event_count++;
        return 0;
    }
    slot->fd = opd_ring_open_event(&attr, -1, ring->cpu);
    if (slot->fd < 0)
        return slot->fd;
    int rc = take_id(slot);
    if (rc == 0 && ioctl(slot->fd, PERF_EVENT_IOC_SET_OUTPUT, ring->sideband.fd) != 0)
        rc = -errno;
    if (rc != 0) {
        close(slot->fd);
        slot->fd = -1;
        return rc;
    }
    ring->event_count++;
    return 0;
}

void
opd_ring_remove_last(struct opd_ring *ring)
{
    struct opd_ring_event *slot = &ring->events[--ring->event_count];
    opd_ring_remove_tasks(ring, ring->event_count);
    if (slot->fd >= 0)
        close(slot->fd);
    slot->fd = -1;
}

void
opd_ring_close(struct opd_ring *ring)
{
    opd_ring_close_tasks(ring);
    while (ring->event_count > 0)
        opd_ring_remove_last(ring);
    if (ring->map != MAP_FAILED)
        munmap(ring->map, ring->map_bytes);
    ring->map = MAP_FAILED;
    if (ring->sideband.fd >= 0)
        close(ring->sideband.fd);
    ring->sideband.fd = -1;
}

int
opd_ring_enable(struct opd_ring *ring, bool enable)
{
    unsigned long request = enable ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE;
    int rc = 0;
    if (enable && ioctl(ring->sideband.fd, PERF_EVENT_IOC_ENABLE, 0) != 0)
        rc = -errno;
    for (unsigned i = 0; i < ring->event_count; i++)
        if (ring->events[i].fd >= 0 && ioctl(ring->events[i].fd, request, 0) != 0)
            rc = -errno;
    for (size_t i = 0; i < ring->task_count; i++) {
        struct opd_ring_task *task = &ring->tasks[i];
        // The side-band goes on while sampling is off.
        if (task->enabled == enable || (!enable && task->event == OPD_RING_SIDEBAND))
            continue;
        if (ioctl(task->fd, request, 0) != 0)
            rc = -errno;
        task->enabled = enable;
    }
    return rc;
}

size_t
opd_ring_written(const struct opd_ring *ring)
{
    const struct perf_event_mmap_page *page = ring->map;
    uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    size_t length = (size_t)(head - ring->tail);
    return length <= ring->data_bytes ? length : 0; // the kernel never overruns the tail
}

const char *
opd_ring_record(const struct opd_ring *ring, size_t at, size_t written, void *bounce, size_t *size)
{
    const char *data = (const char *)ring->map + (ring->map_bytes - ring->data_bytes);
    size_t from = (size_t)((ring->tail + at) & (ring->data_bytes - 1));
    size_t room = ring->data_bytes - from;
    // Records and the ring's size are multiples of 8: a header is never cut.
    struct perf_event_header header;
    memcpy(&header, data + from, sizeof header);
    if (header.size <= room) {
        *size = opd_record_size(data + from, written - at < room ? written - at : room);
        return data + from;
    }
    if (header.size > written - at) {
        *size = 0;
        return bounce;
    }
    memcpy(bounce, data + from, room);
    memcpy((char *)bounce + room, data, header.size - room);
    *size = opd_record_size(bounce, header.size);
    return bounce;
}

bool
opd_ring_has_others(struct opd_ring *ring, size_t written)
{
    const char *data = (const char *)ring->map + (ring->map_bytes - ring->data_bytes);
    while (ring->looked < written) {
        struct perf_event_header header;
        memcpy(&header, data + ((ring->tail + ring->looked) & (ring->data_bytes - 1)),
               sizeof header);
        if (header.type != PERF_RECORD_SAMPLE || header.size == 0)
            return true;
        ring->looked += header.size;
    }
    return false;
}

void
opd_ring_release(struct opd_ring *ring, size_t bytes)
{
    struct perf_event_mmap_page *page = ring->map;
    ring->tail += bytes;
    ring->looked = 0;
    __atomic_store_n(&page->data_tail, ring->tail, __ATOMIC_RELEASE);
}

static uint64_t
read_lost(int fd, uint64_t before)
{
    uint64_t values[4]; // count, enabled, running, lost
    return fd >= 0 && read(fd, values, sizeof values) == sizeof values ? values[3] : before;
}

void
opd_ring_read_lost(struct opd_ring *ring)
{
    if (!ring->targeted) {
        ring->sideband.lost_counter = read_lost(ring->sideband.fd, ring->sideband.lost_counter);
        for (unsigned i = 0; i < ring->event_count; i++)
            ring->events[i].lost_counter =
                read_lost(ring->events[i].fd, ring->events[i].lost_counter);
        return;
    }
    ring->sideband.lost_counter = ring->sideband.closed_lost;
    for (unsigned i = 0; i < ring->event_count; i++)
        ring->events[i].lost_counter = ring->events[i].closed_lost;
    for (size_t i = 0; i < ring->task_count; i++) {
        unsigned event = ring->tasks[i].event;
        struct opd_ring_event *slot =
            event == OPD_RING_SIDEBAND ? &ring->sideband : &ring->events[event];
        slot->lost_counter += read_lost(ring->tasks[i].fd, 0);
    }
}

struct opd_ring_event *
opd_ring_find(struct opd_ring *ring, uint64_t id)
{
    unsigned number = opd_ring_event_number(ring, id);
    if (number != OPD_RING_SIDEBAND)
        return &ring->events[number];
    if (ring->targeted)
        return opd_ring_find_task(ring, id) != NULL ? &ring->sideband : NULL;
    return ring->sideband.id == id ? &ring->sideband : NULL;
}

unsigned
opd_ring_event_number(const struct opd_ring *ring, uint64_t id)
{
    if (ring->targeted) {
        const struct opd_ring_task *task = opd_ring_find_task(ring, id);
        return task != NULL ? task->event : OPD_RING_SIDEBAND;
    }
    for (unsigned i = 0; i < ring->event_count; i++)
        if (ring->events[i].id == id)
            return i;
    return OPD_RING_SIDEBAND;
}

uint64_t
opd_ring_event_lost(const struct opd_ring_event *event)
{
    return event->lost_counter > event->lost_records ? event->lost_counter : event->lost_records;
}

uint64_t
opd_ring_lost(const struct opd_ring *ring)
{
    uint64_t lost = 0;
    for (unsigned i = 0; i < ring->event_count; i++)
        lost += opd_ring_event_lost(&ring->events[i]);
    return lost;
}
