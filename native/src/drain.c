// SPDX-License-Identifier: Apache-2.0
// The drain thread: rings into order, order into the pipeline, losses counted.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "opd/procfs.h"
#include "pipeline.h"
#include "sampler.h"

static void
note_throttle(struct opd_sampler *sampler, struct opd_ring *ring, const struct opd_record *record)
{
    struct opd_ring_event *event = opd_ring_find(ring, record->u.throttle.id);
    if (event == NULL)
        return;
    if (record->type == OPD_RECORD_THROTTLE) {
        sampler->totals.throttles++;
        if (event->throttled_since == 0)
            event->throttled_since = record->u.throttle.time;
    } else if (event->throttled_since != 0) {
        if (record->u.throttle.time > event->throttled_since)
            sampler->totals.throttled_ns += record->u.throttle.time - event->throttled_since;
        event->throttled_since = 0;
    }
}

static bool
parse(struct opd_sampler *sampler, const struct opd_order_item *item, struct opd_record *record)
{
    if (opd_record_parse(&sampler->layouts[item->tag], item->bytes, item->length, record) >= 0)
        return true;
    sampler->totals.bad_records++;
    return false;
}

// One record, measured on the way.
static bool
pop_measured(struct opd_sampler *sampler, uint64_t safe)
{
    struct opd_order_item item;
    struct opd_record record;
    uint64_t hash = 0, began = opd_ticks();
    if (opd_order_pop(sampler->order, safe, &item) != 1)
        return false;
    uint64_t popped = opd_ticks();
    opd_pipeline_measure(sampler->pipeline, &hash);
    if (parse(sampler, &item, &record))
        opd_pipeline_feed(sampler->pipeline, item.tag, &record);
    opd_pipeline_measure(sampler->pipeline, NULL);
    opd_cost_add(&sampler->popped, opd_ticks() - began, popped - began, hash);
    return true;
}

_Static_assert(OPD_BATCH <= OPD_ORDER_HOLD, "records of a batch stay until it is fed");

static void
feed_batch(struct opd_sampler *sampler)
{
    opd_pipeline_feed_samples(sampler->pipeline, sampler->events, sampler->batch, sampler->batched);
    sampler->batched = sampler->batch_pops = 0;
}

static bool
waits(const struct opd_sampler *sampler, uint32_t pid)
{
    for (unsigned i = 0; i < sampler->batched; i++)
        if (sampler->batch_pids[i] == pid)
            return true;
    return false;
}

// Whether a sample that waits could be attributed otherwise after this record.
// A process that starts, maps and ends changes nothing for the others, and
// where processes are short such records are more than the samples.
static bool
concerns_batch(const struct opd_sampler *sampler, const struct opd_record *record)
{
    switch (record->type) {
    case OPD_RECORD_FORK:
        return waits(sampler, record->u.task.pid) || waits(sampler, record->u.task.parent_pid);
    case OPD_RECORD_EXIT:
        return waits(sampler, record->u.task.pid);
    case OPD_RECORD_COMM:
        return waits(sampler, record->u.comm.pid);
    case OPD_RECORD_MMAP:
    case OPD_RECORD_MMAP2:
        return (int32_t)record->u.mmap.pid <= 0 || waits(sampler, record->u.mmap.pid);
    default:
        return true;
    }
}

static void
pop_until(struct opd_sampler *sampler, uint64_t safe)
{
    struct opd_order_item item;
    for (;;) {
        if (opd_cost_due(&sampler->popped)) {
            feed_batch(sampler);
            if (!pop_measured(sampler, safe))
                break;
            continue;
        }
        if (sampler->batch_pops == OPD_ORDER_HOLD)
            feed_batch(sampler);
        if (opd_order_pop(sampler->order, safe, &item) != 1)
            break;
        sampler->batch_pops += sampler->batched > 0;
        struct opd_record *record = &sampler->batch[sampler->batched];
        if (!parse(sampler, &item, record))
            continue;
        if (record->type == OPD_RECORD_SAMPLE) {
            sampler->batch_pids[sampler->batched] = record->pid;
            sampler->events[sampler->batched++] = item.tag;
            if (sampler->batched == 1)
                sampler->batch_pops = 1;
            else if (sampler->batched == OPD_BATCH)
                feed_batch(sampler);
            continue;
        }
        const struct opd_record other = *record;
        if (concerns_batch(sampler, &other))
            feed_batch(sampler);
        opd_pipeline_feed(sampler->pipeline, item.tag, &other);
    }
    feed_batch(sampler);
}

// Which event wrote the record: its number, or 0 for the side-band.
static unsigned
event_of(const struct opd_ring *ring, const void *bytes, size_t length)
{
    uint64_t id;
    if (opd_record_identifier(bytes, length, &id) != 0)
        return 0;
    unsigned number = opd_ring_event_number(ring, id);
    return number != OPD_RING_SIDEBAND ? number : 0;
}

static void
push_record(struct opd_sampler *sampler, struct opd_ring *ring, unsigned stream, const char *bytes,
            size_t size, uint64_t *pushing)
{
    struct opd_record record;
    uint32_t type;
    memcpy(&type, bytes, sizeof type);
    sampler->totals.records++;
    if (type == OPD_RECORD_LOST || type == OPD_RECORD_LOST_SAMPLES || type == OPD_RECORD_THROTTLE ||
        type == OPD_RECORD_UNTHROTTLE) {
        if (opd_record_parse(&sampler->layout, bytes, size, &record) < 0) {
            sampler->totals.bad_records++;
            return;
        }
        if (type == OPD_RECORD_LOST) {
            struct opd_ring_event *event = opd_ring_find(ring, record.u.lost.id);
            if (event != NULL)
                event->lost_records += record.u.lost.lost;
        } else if (type == OPD_RECORD_LOST_SAMPLES) {
            struct opd_ring_event *event = opd_ring_find(ring, record.id);
            if (event != NULL)
                event->lost_records += record.u.lost.lost;
        } else {
            note_throttle(sampler, ring, &record);
        }
        return;
    }
    uint64_t time = 0;
    opd_record_time(&sampler->layout, bytes, size, &time);
    unsigned event = event_of(ring, bytes, size);
    if (type == OPD_RECORD_EXIT && opd_record_parse(&sampler->layout, bytes, size, &record) >= 0)
        opd_pipeline_note_exit(sampler->pipeline, record.u.task.pid, record.u.task.tid, time);
    uint64_t began = pushing != NULL ? opd_ticks() : 0;
    int rc = opd_order_push(sampler->order, stream, time, event, bytes, (uint32_t)size);
    if (rc == -ENOSPC) {
        // Out of room to wait: order suffers, no record does.
        pop_until(sampler, UINT64_MAX);
        rc = opd_order_push(sampler->order, stream, time, event, bytes, (uint32_t)size);
    }
    if (pushing != NULL)
        *pushing = opd_ticks() - began;
    if (rc != 0)
        sampler->totals.bad_records++;
}

static void
push_measured(struct opd_sampler *sampler, struct opd_ring *ring, unsigned stream,
              const char *bytes, size_t size)
{
    uint64_t pushing = 0, began = opd_ticks();
    push_record(sampler, ring, stream, bytes, size, &pushing);
    opd_cost_add(&sampler->copied, opd_ticks() - began, pushing, 0);
}

static void
copy_rings(struct opd_sampler *sampler)
{
    for (size_t i = 0; i < sampler->ring_count; i++) {
        struct opd_ring *ring = &sampler->rings[i];
        size_t written = opd_ring_written(ring), at = 0;
        sampler->totals.bytes += written;
        while (at < written) {
            size_t size;
            const char *bytes = opd_ring_record(ring, at, written, sampler->bounce, &size);
            if (size == 0) {
                sampler->totals.bad_records++;
                break;
            }
            if (opd_cost_due(&sampler->copied))
                push_measured(sampler, ring, (unsigned)i, bytes, size);
            else
                push_record(sampler, ring, (unsigned)i, bytes, size, NULL);
            at += size;
        }
        opd_ring_release(ring, written);
    }
}

void
opd_sampler_drain(struct opd_sampler *sampler, bool everything)
{
    uint64_t now = opd_clock_monotonic();
    uint64_t safe = everything ? UINT64_MAX : now - SETTLE_NS;
    uint64_t began = opd_thread_cpu();
    copy_rings(sampler);
    uint64_t copied = opd_thread_cpu();
    pop_until(sampler, safe);
    sampler->copied.cpu_ns += copied - began;
    sampler->popped.cpu_ns += opd_thread_cpu() - copied;
    sampler->processed_until = everything ? now : safe;
    sampler->totals.last_progress = opd_clock_monotonic();
    atomic_store(&sampler->progress, sampler->totals.last_progress);
}

static void
pause_snapshot(void *context)
{
    copy_rings(context);
}

static void
publish_stats(struct opd_sampler *sampler)
{
    struct opd_order_stats order;
    opd_order_stats(sampler->order, &order);
    sampler->totals.late = order.late;
    sampler->totals.inverted = order.inverted;
    sampler->totals.order_peak_bytes = order.peak_bytes;
    sampler->totals.drain_cpu_ns = opd_thread_cpu();
}

static size_t
fill_polls(struct opd_sampler *sampler)
{
    sampler->polls[0] = (struct pollfd){.fd = sampler->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < sampler->ring_count; i++)
        sampler->polls[i + 1] = (struct pollfd){
            .fd = sampler->rings[i].hung ? -1 : sampler->rings[i].sideband.fd, .events = POLLIN};
    return sampler->ring_count + 1;
}

// A CPU that went away leaves POLLHUP standing: its ring is not waited for any
// more, until the list of CPUs is set anew.
static void
note_hangups(struct opd_sampler *sampler, size_t polls)
{
    for (size_t i = 1; i < polls && i <= sampler->ring_count; i++)
        if (sampler->polls[i].revents & (POLLHUP | POLLERR) &&
            sampler->polls[i].fd == sampler->rings[i - 1].sideband.fd)
            sampler->rings[i - 1].hung = true;
}

// Whether the rings are to be drained at a turn that nobody asked for. What
// tells of processes is taken at once, since their files must still be there;
// samples alone wait for more: a wake-up with cold caches costs as much as many
// of them.
static bool
is_due(struct opd_sampler *sampler)
{
    uint64_t now = opd_clock_monotonic();
    if (now - sampler->totals.last_progress >= PATIENCE_NS)
        return true;
    for (size_t i = 0; i < sampler->ring_count; i++) {
        struct opd_ring *ring = &sampler->rings[i];
        size_t written = opd_ring_written(ring);
        if (written >= ring->data_bytes / 4 || opd_ring_has_others(ring, written))
            return true;
    }
    atomic_store(&sampler->progress, now);
    return false;
}

static bool
is_gone(uint32_t pid, uint32_t tid)
{
    return (int32_t)pid > 0 && syscall(SYS_tgkill, pid, tid, 0) != 0 && errno == ESRCH;
}

void
opd_sampler_sweep(struct opd_sampler *sampler)
{
    const char *root = sampler->pipeline->proc_root;
    if (root == NULL || strcmp(root, "/proc") != 0)
        return; // its processes are not ours to ask for
    sampler->swept = opd_clock_monotonic();
    opd_spaces_sweep(sampler->pipeline->spaces, sampler->swept, is_gone);
}

void *
opd_sampler_drain_main(void *argument)
{
    struct opd_sampler *sampler = argument;
    pthread_setname_np(pthread_self(), "opd-drain");

    pthread_mutex_lock(&sampler->lock);
    uint64_t began = opd_clock_monotonic();
    int processes = sampler->options.targeted
                        ? opd_sampler_snapshot_targets(sampler)
                        : opd_pipeline_snapshot(sampler->pipeline, pause_snapshot, sampler);
    sampler->totals.snapshot_processes = processes > 0 ? (uint64_t)processes : 0;
    sampler->totals.snapshot_ns = opd_clock_monotonic() - began;
    sampler->totals.cost.snapshot_ns = opd_thread_cpu();
    size_t polls = fill_polls(sampler);
    pthread_mutex_unlock(&sampler->lock);

    while (!atomic_load(&sampler->stopping)) {
        int ready = poll(sampler->polls, polls, (int)sampler->options.wake_ms);
        uint64_t word;
        if (ready > 0 && (sampler->polls[0].revents & POLLIN) &&
            read(sampler->wake_fd, &word, sizeof word) < 0 && errno != EAGAIN)
            break;
        pthread_mutex_lock(&sampler->lock);
        sampler->totals.wakes++;
        if (ready == 0 && !is_due(sampler)) {
            pthread_mutex_unlock(&sampler->lock);
            continue;
        }
        note_hangups(sampler, polls);
        opd_sampler_drain(sampler, false);
        opd_pipeline_poll(sampler->pipeline);
        if (sampler->totals.last_progress > sampler->swept + SWEEP_EVERY_NS)
            opd_sampler_sweep(sampler);
        publish_stats(sampler);
        polls = fill_polls(sampler);
        pthread_cond_broadcast(&sampler->progressed);
        pthread_mutex_unlock(&sampler->lock);
    }
    return NULL;
}
