// SPDX-License-Identifier: Apache-2.0
// One CPU's ring and the events that write into it. Private to the sampler.
#ifndef OPD_RING_H
#define OPD_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opd/pipeline.h"
#include "opd/sampler.h"

struct opd_ring_event {
    int fd; // -1: not open on this CPU
    uint64_t id;
    uint64_t lost_records; // by LOST records
    uint64_t lost_counter; // by PERF_FORMAT_LOST
    uint64_t closed_lost;  // of it: by events of threads that have ended
    uint64_t throttled_since;
};

// One event of one thread, when threads are sampled instead of the CPU.
struct opd_ring_task {
    uint64_t id;
    int fd;
    uint32_t tid;
    uint32_t event; // its number, or OPD_RING_SIDEBAND
    bool enabled;
};
#define OPD_RING_SIDEBAND UINT32_MAX

struct opd_ring {
    uint32_t cpu;
    void *map;
    size_t map_bytes, data_bytes;
    uint64_t tail;
    size_t looked; // at the types of so many bytes behind it
    bool hung;     // its CPU went away
    struct opd_ring_event sideband;
    struct opd_ring_event events[OPD_EVENTS_MAX];
    unsigned event_count;
    bool targeted;               // `tasks` write into it, `events` only count
    struct opd_ring_task *tasks; // by id
    size_t task_count, task_room;
};

// What every event here is opened with: `fields` of samples beside those that
// are always there. All else about records is the same.
#define OPD_RING_CALLCHAIN 1u
#define OPD_RING_CGROUP 2u
#define OPD_RING_PERIOD 4u // only events by frequency have it
#define OPD_RING_RAW 8u
#define OPD_RING_MEMORY 16u
// The fields of samples of one event.
unsigned opd_ring_fields(const struct opd_event_attr *event, unsigned fields);
// Whether the kernel knows PERF_SAMPLE_CGROUP and its records (since 5.7).
bool opd_ring_can_cgroup(void);
void opd_ring_layout(struct opd_record_layout *layout, unsigned fields);

// Opens the side-band event of `cpu` and maps its ring. 0 or -errno. For
// targets the ring belongs to an event of this process that counts nothing.
int opd_ring_open(struct opd_ring *ring, uint32_t cpu, size_t data_bytes, unsigned fields,
                  bool targeted);
// Opens one more event, redirected into the ring, disabled. 0 or -errno.
int opd_ring_add(struct opd_ring *ring, const struct opd_event_attr *attr, unsigned fields);
void opd_ring_remove_last(struct opd_ring *ring);
void opd_ring_close(struct opd_ring *ring);
int opd_ring_enable(struct opd_ring *ring, bool enable);

// How many bytes were written since the last release.
size_t opd_ring_written(const struct opd_ring *ring);
// The record `at` bytes behind the last release, of `written`: where it lies,
// or in `bounce` (64 KiB) when it goes over the ring's end. *size is 0 for
// what is no record.
const char *opd_ring_record(const struct opd_ring *ring, size_t at, size_t written, void *bounce,
                            size_t *size);
// Whether there is anything but samples in what was written, looking at each
// record once.
bool opd_ring_has_others(struct opd_ring *ring, size_t written);
// Gives `bytes` back to the kernel.
void opd_ring_release(struct opd_ring *ring, size_t bytes);

// Reads the kernel's lost counters.
void opd_ring_read_lost(struct opd_ring *ring);
// The larger of what LOST records and the kernel's counter say.
uint64_t opd_ring_event_lost(const struct opd_ring_event *event);
uint64_t opd_ring_lost(const struct opd_ring *ring); // samples, of all events
struct opd_ring_event *opd_ring_find(struct opd_ring *ring, uint64_t id);
// The event of an id: its number, or OPD_RING_SIDEBAND for any other.
unsigned opd_ring_event_number(const struct opd_ring *ring, uint64_t id);

// Opens the side-band (attr NULL) or event `number` of one thread on this
// CPU, for it and the threads and processes it will make. 0 or -errno.
int opd_ring_add_task(struct opd_ring *ring, uint32_t tid, unsigned number,
                      const struct opd_event_attr *attr, unsigned fields);
// Closes all of a thread's events; what they lost stays counted.
void opd_ring_remove_task(struct opd_ring *ring, uint32_t tid);
// Closes one event of all threads.
void opd_ring_remove_tasks(struct opd_ring *ring, unsigned number);
struct opd_ring_task *opd_ring_find_task(const struct opd_ring *ring, uint64_t id);
void opd_ring_close_tasks(struct opd_ring *ring);

// What ring.c and ring_task.c both open events with.
struct perf_event_attr;
void opd_ring_common_attr(struct perf_event_attr *attr, unsigned fields);
void opd_ring_event_attr(struct perf_event_attr *attr, const struct opd_event_attr *event,
                         unsigned fields);
int opd_ring_open_event(struct perf_event_attr *attr, int pid, uint32_t cpu);

#endif
